// Package extension turns the configuration of extension services into the documents that Talos reads. Talos
// accepts nearly everything in them and reports no error for a misconfigured service: Check looks for that.
package extension

import (
	"path"
	"regexp"
	"strings"

	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Root is the name of the field, with which the paths of errors begin.
const Root = "extensionServices"

// longest is the maximum size of a file, in bytes. The schema of the API counts characters.
const longest = 64 << 10

var (
	serviceName  = regexp.MustCompile(`^[a-z0-9_-]+$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Documents returns one document for each service. The services have passed Check.
func Documents(services []v1alpha1.ExtensionService) []docconfig.Document {
	docs := make([]docconfig.Document, 0, len(services))

	for _, s := range services {
		doc := extensions.NewServicesConfigV1Alpha1()
		doc.ServiceName = s.Name

		for _, f := range s.ConfigFiles {
			doc.ServiceConfigFiles = append(doc.ServiceConfigFiles, extensions.ConfigFile{
				ConfigFileContent: f.Content, ConfigFileMountPath: f.MountPath,
			})
		}

		for _, v := range s.Environment {
			doc.ServiceEnvironment = append(doc.ServiceEnvironment, v.Name+"="+v.Value)
		}

		docs = append(docs, doc)
	}

	return docs
}

// Check returns what cannot work, or nothing. The paths of the errors begin with root, and name services, files and
// variables by their keys. No error holds the content of a file or the value of a variable.
func Check(root *field.Path, services []v1alpha1.ExtensionService) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]bool{}

	for _, s := range services {
		at := root.Key(s.Name)

		switch {
		case seen[s.Name]:
			errs = append(errs, field.Invalid(at, s.Name, "is listed twice; put both into one entry"))
		case strings.HasPrefix(s.Name, "ext-"):
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "begins with ext-, which Talos adds to the name "+
				"that the extension defines; write "+strings.TrimPrefix(s.Name, "ext-")))
		case !serviceName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at.Child("name"), s.Name,
				"is not the name of an extension service: use lower-case letters, digits, - and _"))
		}

		seen[s.Name] = true

		if len(s.ConfigFiles)+len(s.Environment) == 0 {
			errs = append(errs, field.Required(at, "needs configFiles, environment, or both"))
		}

		errs = append(errs, checkFiles(at.Child("configFiles"), s.ConfigFiles)...)
		errs = append(errs, checkVariables(at.Child("environment"), s.Environment)...)
	}

	return errs
}

func checkFiles(root *field.Path, files []v1alpha1.ExtensionFile) field.ErrorList {
	var errs field.ErrorList

	// Talos keeps the files of a service in one directory, with dashes for the slashes of their paths.
	kept := map[string]string{}

	for _, f := range files {
		at := root.Key(f.MountPath)
		flat := strings.ReplaceAll(f.MountPath, "/", "-")

		switch first, taken := kept[flat]; {
		case !strings.HasPrefix(f.MountPath, "/"):
			errs = append(errs, field.Invalid(at.Child("mountPath"), f.MountPath, "must be an absolute path"))
		case f.MountPath == "/":
			errs = append(errs, field.Invalid(at.Child("mountPath"), f.MountPath, "is a directory; name a file"))
		case path.Clean(f.MountPath) != f.MountPath:
			errs = append(errs, field.Invalid(at.Child("mountPath"), f.MountPath,
				"has //, . or .. in it, or a slash at its end; write "+path.Clean(f.MountPath)))
		case taken && first == f.MountPath:
			errs = append(errs, field.Invalid(at.Child("mountPath"), f.MountPath, "is the path of two files"))
		case taken:
			errs = append(errs, field.Invalid(at.Child("mountPath"), f.MountPath,
				"conflicts with "+first+": Talos stores both as the same file (slashes become dashes); rename one of them"))
		default:
			kept[flat] = f.MountPath
		}

		if len(f.Content) > longest {
			errs = append(errs, field.TooLong(at.Child("content"), "", longest))
		}

		if f.Content == "" {
			errs = append(errs, field.Required(at.Child("content"), "Talos accepts no empty file"))
		}
	}

	return errs
}

func checkVariables(root *field.Path, variables []v1alpha1.ExtensionVariable) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]bool{}

	for _, v := range variables {
		at := root.Key(v.Name)

		switch {
		case seen[v.Name]:
			errs = append(errs, field.Invalid(at, v.Name, "is listed twice"))
		case !variableName.MatchString(v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name,
				"is not the name of a variable: use letters, digits and _, and no digit first"))
		}

		seen[v.Name] = true

		// One entry of a list of NAME=value: what follows a new line or a NUL would be lost, or be another variable.
		if strings.ContainsAny(v.Value, "\x00\n\r") {
			errs = append(errs, field.Forbidden(at.Child("value"), "has more than one line; put it into a file"))
		}
	}

	return errs
}
