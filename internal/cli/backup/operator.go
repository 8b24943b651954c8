package backup

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// operatorFlags describe how the operator accesses a store that is named by its address. Its files and its environment
// differ from those of the user at the command line.
type operatorFlags struct {
	credentials, ca, path string
}

func (f *operatorFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.credentials, "s3-credentials-secret", "", "Secret with the keys accessKeyID and secretAccessKey "+
		"that the operator uses")
	flags.StringVar(&f.ca, "s3-ca-secret", "", "NAME/KEY of a Secret with the certificates that the operator checks that "+
		"of the S3 server against")
	flags.StringVar(&f.path, "directory-path", "", "path of the folder below that of the namespace in the operator's "+
		"--backup-directory (default: that folder itself)")
}

// storageFor returns the store of --storage in the form in which the operator needs it.
func (f *storeFlags) storageFor(o *operatorFlags) (*v1alpha1.BackupStorage, error) {
	if !strings.HasPrefix(f.storage, schemeS3) {
		if o.credentials != "" || o.ca != "" {
			return nil, errors.New("--s3-credentials-secret and --s3-ca-secret go with --storage s3://bucket/prefix")
		}

		return &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{Path: o.path}}, nil
	}

	s3 := f.s3()

	if o.credentials != "" {
		s3.CredentialsRef = &v1alpha1.ObjectReference{Name: o.credentials}
	}

	if o.ca != "" {
		name, key, ok := strings.Cut(o.ca, "/")
		if !ok || name == "" || key == "" {
			return nil, fmt.Errorf("--s3-ca-secret %s does not name a Secret and a key of it: use NAME/KEY", o.ca)
		}

		s3.CAFrom = &v1alpha1.SecretKeyReference{Name: name, Key: key}
	}

	return &v1alpha1.BackupStorage{S3: &s3}, nil
}
