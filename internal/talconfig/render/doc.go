// Package render turns a talconfig.yaml that was read into machine configs, one a node.
//
// Most of the machine config of a node is that of its neighbours, too: what nodes share is generated, patched, encoded
// and validated once, and only what is of one node alone, its name and its links, for each. It is pure: no file is
// written, no clock and no network is asked.
package render
