package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// mutant is one small change.
type mutant struct {
	id   string
	File string `json:"file"`
	Line int    `json:"line"`
	Func string `json:"func"`
	// Change says what is done to Code.
	Change string `json:"change"`
	Code   string `json:"code"`
}

func (m mutant) matches(text string) bool {
	return strings.Contains(m.File+" "+m.Func+" "+m.Change+" "+m.Code, text)
}

// Changes.
const (
	never   = "never true"
	always  = "always true"
	negated = "negated"
	shifted = "one more"
	edge    = "other at the edge"
	dropped = "dropped"
	skipped = "case never taken"
)

// edit inserts text at an offset of a file.
type edit struct {
	at int
	// depth orders edits at one place: what is further out opens first and closes last.
	depth  int
	closes bool
	text   string
}

// mutator collects the mutants of one file.
type mutator struct {
	*pkg
	*source

	known   *explanations
	mutants []mutant
	edits   []edit
	stack   []ast.Node
}

// mutate returns the text of a file with all its mutants.
func (p *pkg) mutate(s *source, known *explanations) ([]byte, []mutant) {
	m := &mutator{pkg: p, source: s, known: known}

	for _, d := range s.tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && !known.worded(s.base, f.Name.Name) {
			m.stack = []ast.Node{f}
			ast.Inspect(f.Body, m.visit)
		}
	}

	return m.text(), m.mutants
}

func (m *mutator) visit(n ast.Node) bool {
	if n == nil {
		m.stack = m.stack[:len(m.stack)-1]

		return true
	}

	switch n := n.(type) {
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			m.wrap(n.Cond, never, "((", ") && !mutant(%q))")
		}
	case *ast.SwitchStmt:
		m.cases(n)
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.ReturnStmt:
		m.roots(n.Results...)
	case *ast.KeyValueExpr:
		m.roots(n.Value)
	case *ast.CallExpr:
		m.roots(n.Args...)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			m.statement(n)
		}

		m.roots(n.Rhs...)
	case *ast.IncDecStmt, *ast.ExprStmt, *ast.BranchStmt:
		m.statement(n)
	}

	m.stack = append(m.stack, n)

	return true
}

// condition makes a condition true or false.
func (m *mutator) condition(e ast.Expr) {
	m.wrap(e, never, "((", ") && !mutant(%q))")
	m.wrap(e, always, "((", ") || mutant(%q))")
}

// roots negates what is true or false and no part of a condition.
func (m *mutator) roots(list ...ast.Expr) {
	for _, e := range list {
		if m.isBool(e) {
			m.wrap(e, negated, "((", ") != mutant(%q))")
		}
	}
}

// cases skips cases of a switch.
func (m *mutator) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			switch t := m.info.Types[e].Type; {
			case s.Tag == nil:
				m.condition(e)
			case isKind(t, types.IsInteger):
				m.wrap(e, skipped, "mutantLabel(%q, ", ")")
			case isKind(t, types.IsString):
				m.wrap(e, skipped, "mutantText(%q, ", ")")
			}
		}
	}
}

func (m *mutator) binary(b *ast.BinaryExpr) {
	x, y := m.code(b.X), m.code(b.Y)

	switch b.Op {
	case token.LAND:
		m.wrap(b.X, always, "((", ") || mutant(%q))")
		m.wrap(b.Y, always, "((", ") || mutant(%q))")
	case token.LOR:
		m.wrap(b.X, never, "((", ") && !mutant(%q))")
		m.wrap(b.Y, never, "((", ") && !mutant(%q))")
	case token.LSS, token.GTR:
		m.wrap(b, edge, "((", ") || mutant(%q) && "+x+" == "+y+")")
	case token.LEQ, token.GEQ:
		m.wrap(b, edge, "((", ") && !(mutant(%q) && "+x+" == "+y+"))")
	case token.EQL, token.NEQ:
		// The operand of && and || is dropped, a condition is fixed: what is left is the other answer.
		if !m.isCondition() {
			m.wrap(b, negated, "((", ") != mutant(%q))")
		}
	case token.ADD, token.SUB, token.MUL, token.QUO:
		if tv := m.info.Types[b]; tv.Value == nil && isKind(tv.Type, types.IsInteger) {
			m.wrap(b, shifted, "mutantNumber(%q, ", ")")
		}
	default:
	}
}

// isCondition: what is visited is returned, or is a condition as a whole, so that it has its mutants already.
func (m *mutator) isCondition() bool {
	switch m.stack[len(m.stack)-1].(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.ParenExpr:
		return false
	}

	return true
}

// statement drops a statement, unless it is part of another one, as in the head of a loop.
func (m *mutator) statement(s ast.Node) {
	switch m.stack[len(m.stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		m.wrap(s, dropped, "if !mutant(%q) { ", " }")
	}
}

func (m *mutator) isBool(e ast.Expr) bool {
	tv := m.info.Types[e]

	return tv.Type != nil && isKind(tv.Type, types.IsBoolean)
}

func isKind(t types.Type, kind types.BasicInfo) bool {
	b, ok := t.Underlying().(*types.Basic)

	return ok && b.Info()&kind != 0
}

// wrap notes a mutant that is what stands before and after some code; one of both has the place of its name.
func (m *mutator) wrap(n ast.Node, change, before, after string) {
	id := m.base + "-" + strconv.Itoa(len(m.mutants)+1)
	f := m.stack[0].(*ast.FuncDecl)

	m.mutants = append(m.mutants, mutant{
		id: id, File: m.base, Line: m.set.Position(n.Pos()).Line, Func: f.Name.Name, Change: change,
		Code: strings.Join(strings.Fields(m.code(n)), " "),
	})

	depth := len(m.mutants)
	m.edits = append(m.edits,
		edit{at: m.offset(n.Pos()), depth: depth, text: named(before, id)},
		edit{at: m.offset(n.End()), depth: depth, closes: true, text: named(after, id)})
}

func named(format, id string) string {
	return strings.ReplaceAll(format, "%q", strconv.Quote(id))
}

func (m *mutator) offset(p token.Pos) int { return m.set.Position(p).Offset }

func (m *mutator) code(n ast.Node) string {
	return string(m.content[m.offset(n.Pos()):m.offset(n.End())])
}

// text is the file with all edits.
func (m *mutator) text() []byte {
	slices.SortFunc(m.edits, func(a, b edit) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}

		switch {
		case a.closes && b.closes:
			return cmp.Compare(b.depth, a.depth)
		case a.closes != b.closes:
			// What ends here ends before anything else begins.
			if a.closes {
				return -1
			}

			return 1
		}

		return cmp.Compare(a.depth, b.depth)
	})

	var (
		out  bytes.Buffer
		done int
	)

	for _, e := range m.edits {
		fmt.Fprintf(&out, "%s%s", m.content[done:e.at], e.text)
		done = e.at
	}

	out.Write(m.content[done:])

	return out.Bytes()
}
