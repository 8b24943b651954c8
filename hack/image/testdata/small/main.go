// Command small stands for the operator where a test is about the image and not about what is in it.
package main

import "os"

var version, commit, date string

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		println(version, commit, date)
	}
}
