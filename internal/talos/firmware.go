package talos

import (
	"strings"

	"github.com/google/uuid"
)

// sharedUUIDs are in the firmware of many boards, so they do not identify a machine. Source: the list of UUIDs that
// customers' computers were found to share ("Non-Unique UUID", documentation of CapaInstaller), and the one that counts
// through all digits.
var sharedUUIDs = map[string]bool{
	"00000000-0000-0000-0000-000000000000": true, // SMBIOS: not present
	"ffffffff-ffff-ffff-ffff-ffffffffffff": true, // SMBIOS: not set
	"fefefefe-fefe-fefe-fefe-fefefefefefe": true,
	"00020003-0004-0005-0006-000700080009": true,
	"03000200-0400-0500-0006-000700080009": true,
	"07090201-0103-0301-0807-060504030201": true,
	"12345678-1234-5678-90ab-cddeefaabbcc": true,
	"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f": true,
	"8e275844-178f-44a8-aceb-a7d7e5178c63": true,
	"dc698397-fa54-4cf2-82c8-b1b5307a6a7f": true,
}

// unfinished is the suffix of UUIDs of boards whose vendor set only the first bytes.
const unfinished = "-ffff-ffff-ffff-ffffffffffff"

// TellingUUID returns the UUID of a firmware if it identifies the machine. It returns an empty text if it is no UUID,
// consists of one repeated byte, or is known to be shared by many boards.
func TellingUUID(text string) string {
	id, err := uuid.Parse(text)
	if err != nil {
		return ""
	}

	form := id.String()
	uniform := strings.Count(string(id[:]), string(id[:1])) == len(id)
	if uniform || sharedUUIDs[form] || strings.HasSuffix(form, unfinished) {
		return ""
	}

	return text
}
