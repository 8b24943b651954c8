// Package talconfig reads talconfig.yaml, the file that describes a fleet of Talos nodes for talhelper, with the files
// that belong to it: variables (talenv), patches, manifests and machine files, encrypted by sops or not.
//
// It reads files, and nothing else: no node, no API server and no image factory is asked. What is wrong is an error of
// type Problems, each with the path of the field, the line, what is wrong and what would be right. No error contains
// the value of a field that may be a secret.
package talconfig
