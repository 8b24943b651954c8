package talconfig

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	"go.yaml.in/yaml/v4"
)

// sopsKey is the key of the metadata of a file that sops encrypted.
const sopsKey = "sops"

// macOnlyEncrypted begins the checksum of a file whose checksum covers encrypted values only.
var macOnlyEncrypted = []byte{
	0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
	0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
}

// sopsMetadata is what is needed to decrypt.
type sopsMetadata struct {
	Age []struct {
		Recipient string `yaml:"recipient"`
		Encrypted string `yaml:"enc"`
	} `yaml:"age"`
	KeyGroups         []any  `yaml:"key_groups"`
	LastModified      string `yaml:"lastmodified"`
	MAC               string `yaml:"mac"`
	MACOnlyEncrypted  bool   `yaml:"mac_only_encrypted"`
	UnencryptedSuffix string `yaml:"unencrypted_suffix"`
	EncryptedSuffix   string `yaml:"encrypted_suffix"`
	UnencryptedRegex  string `yaml:"unencrypted_regex"`
	EncryptedRegex    string `yaml:"encrypted_regex"`
	// The rules below are about comments, which are not read here.
	UnencryptedCommentRegex string `yaml:"unencrypted_comment_regex"`
	EncryptedCommentRegex   string `yaml:"encrypted_comment_regex"`
}

// isEncrypted reports whether sops encrypted a tree.
func isEncrypted(root *yaml.Node) bool {
	if root == nil || root.Kind != yaml.MappingNode {
		return false
	}

	meta := child(root, sopsKey)

	return meta != nil && meta.Kind == yaml.MappingNode && child(meta, "mac") != nil
}

// decryptTree decrypts a tree that sops encrypted, in place, and verifies its checksum. Nothing of it may be used if
// there is an error. The errors have no values of the file.
func decryptTree(root *yaml.Node, keys []age.Identity) error {
	var meta sopsMetadata
	if decode(child(root, sopsKey), &meta) != nil {
		return errors.New("its sops metadata cannot be read")
	}

	d, err := newDecryption(meta, keys)
	if err != nil {
		return err
	}

	var content []*yaml.Node

	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != sopsKey {
			content = append(content, root.Content[i], root.Content[i+1])
		}
	}

	root.Content = content

	if err := d.walk(root, nil); err != nil {
		return err
	}

	return d.verify()
}

// decryption of one file.
type decryption struct {
	meta                sopsMetadata
	key                 cipher.Block
	mac                 hash.Hash
	encrypted, unsealed *regexp.Regexp
}

func newDecryption(m sopsMetadata, keys []age.Identity) (*decryption, error) {
	switch {
	case len(m.KeyGroups) > 0:
		return nil, errors.New("sops encrypted it with key groups, which are not supported: decrypt it with sops -d")
	case m.UnencryptedCommentRegex != "" || m.EncryptedCommentRegex != "":
		return nil, errors.New("sops chose its encrypted values by comments, which is not supported: decrypt it with sops -d")
	case len(m.Age) == 0:
		return nil, errors.New("sops encrypted it without an age key; only age is supported: add an age recipient " +
			"with sops updatekeys, or decrypt it with sops -d")
	}

	key, err := dataKey(m, keys)
	if err != nil {
		return nil, err
	}

	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, errors.New("its data key has a wrong length")
	}

	d := &decryption{meta: m, key: block, mac: sha512.New()}
	if m.MACOnlyEncrypted {
		d.mac.Write(macOnlyEncrypted)
	}

	for _, pattern := range []struct {
		text string
		into **regexp.Regexp
	}{{m.EncryptedRegex, &d.encrypted}, {m.UnencryptedRegex, &d.unsealed}} {
		if pattern.text == "" {
			continue
		}

		if *pattern.into, err = regexp.Compile(pattern.text); err != nil {
			return nil, errors.New("its sops metadata has an invalid regular expression")
		}
	}

	return d, nil
}

// dataKey is encrypted once for each recipient.
func dataKey(m sopsMetadata, keys []age.Identity) ([]byte, error) {
	recipients := make([]string, 0, len(m.Age))

	for _, recipient := range m.Age {
		recipients = append(recipients, recipient.Recipient)

		if len(keys) == 0 {
			continue
		}

		plain, err := age.Decrypt(armor.NewReader(strings.NewReader(recipient.Encrypted)), keys...)
		if err != nil {
			continue
		}

		if key, err := io.ReadAll(plain); err == nil {
			return key, nil
		}
	}

	return nil, fmt.Errorf("no age key fits: it is encrypted for %s; set SOPS_AGE_KEY_FILE or SOPS_AGE_KEY to the key of "+
		"one of them", strings.Join(recipients, ", "))
}

func (d *decryption) walk(n *yaml.Node, path []string) error {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := d.walk(n.Content[i+1], append(path[:len(path):len(path)], n.Content[i].Value)); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		// The items of a list have the path of the list.
		for _, item := range n.Content {
			if err := d.walk(item, path); err != nil {
				return err
			}
		}
	default:
		if !isNull(n) {
			return d.leaf(n, path)
		}
	}

	return nil
}

func (d *decryption) leaf(n *yaml.Node, path []string) error {
	if !d.isSealed(path) {
		if !d.meta.MACOnlyEncrypted {
			d.mac.Write(macBytes(n))
		}

		return nil
	}

	// sops leaves an empty text as it is.
	if n.Value == "" {
		return nil
	}

	plain, kind, err := d.open(n.Value, strings.Join(path, ":")+":")
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(path, "."), err)
	}

	if kind != sopsComment {
		d.mac.Write(plain)
	}

	n.Value, n.Style = string(plain), 0
	n.Tag = tags[kind]

	if kind == "bool" {
		n.Value = strings.ToLower(n.Value)
	}

	return nil
}

// sopsComment is the type of a comment in a list, which the checksum leaves out.
const sopsComment = "comment"

// tags of the types of sops. Bytes are those of a text.
var tags = map[string]string{
	"str": "!!str", "bytes": "!!str", "int": "!!int", "float": "!!float", "bool": "!!bool", "time": "!!timestamp",
	sopsComment: "!!str",
}

// isSealed follows the rules of sops, which are applied in this order.
func (d *decryption) isSealed(path []string) bool {
	sealed := true

	has := func(match func(string) bool) bool {
		for _, key := range path {
			if match(key) {
				return true
			}
		}

		return false
	}

	endsWith := func(suffix string) bool {
		return has(func(key string) bool { return strings.HasSuffix(key, suffix) })
	}

	if suffix := d.meta.UnencryptedSuffix; suffix != "" && endsWith(suffix) {
		sealed = false
	}

	if suffix := d.meta.EncryptedSuffix; suffix != "" {
		sealed = endsWith(suffix)
	}

	if d.unsealed != nil && has(d.unsealed.MatchString) {
		sealed = false
	}

	if d.encrypted != nil {
		sealed = has(d.encrypted.MatchString)
	}

	return sealed
}

var sealedValue = regexp.MustCompile(`^ENC\[AES256_GCM,data:(.*),iv:(.+),tag:(.+),type:(.+)\]$`)

// open decrypts one value. The path is authenticated: a value that was moved does not open.
func (d *decryption) open(text, path string) (plain []byte, kind string, err error) {
	parts := sealedValue.FindStringSubmatch(text)
	if parts == nil {
		return nil, "", errors.New("is not encrypted, although it should be: encrypt the file again with sops")
	}

	var raw [3][]byte

	for i := range raw {
		if raw[i], err = base64.StdEncoding.DecodeString(parts[i+1]); err != nil {
			return nil, "", errors.New("is damaged")
		}
	}

	if len(raw[1]) == 0 || tags[parts[4]] == "" {
		return nil, "", errors.New("is damaged")
	}

	gcm, err := cipher.NewGCMWithNonceSize(d.key, len(raw[1]))
	if err != nil {
		return nil, "", errors.New("is damaged")
	}

	plain, err = gcm.Open(nil, raw[1], append(raw[0], raw[2]...), []byte(path))
	if err != nil {
		return nil, "", errors.New("was changed after it was encrypted, or is damaged: encrypt the file again with sops")
	}

	return plain, parts[4], nil
}

// verify compares the checksum over all values.
func (d *decryption) verify() error {
	at := d.meta.LastModified
	if parsed, err := time.Parse(time.RFC3339, at); err == nil {
		at = parsed.Format(time.RFC3339)
	}

	want, _, err := d.open(d.meta.MAC, at)
	if err != nil || fmt.Sprintf("%X", d.mac.Sum(nil)) != string(want) {
		return errors.New("its checksum does not fit: it was changed after it was encrypted; check the change, and " +
			"encrypt the file again with sops")
	}

	return nil
}

// macBytes is what the checksum has of a value that is not encrypted.
func macBytes(n *yaml.Node) []byte {
	switch n.ShortTag() {
	case "!!bool":
		if strings.EqualFold(n.Value, "true") {
			return []byte("True")
		}

		return []byte("False")
	case "!!int":
		var number int
		if decode(n, &number) == nil {
			return []byte(strconv.Itoa(number))
		}
	case "!!float":
		var number float64
		if decode(n, &number) == nil {
			return []byte(strconv.FormatFloat(number, 'f', -1, 64))
		}
	case "!!timestamp":
		var at time.Time
		if decode(n, &at) == nil {
			return []byte(at.Format(time.RFC3339Nano))
		}
	}

	return []byte(n.Value)
}
