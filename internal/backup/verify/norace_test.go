//go:build !race

package verify_test

// raced: this binary was built with the race detector.
const raced = false
