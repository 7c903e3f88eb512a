package form

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/serry-dev/serry/mesh"
)

// ParseMesh reads what [Mesh.String] writes, and what JAX prints for a mesh.
// What it does not know, as a later version may write it, is an error.
func ParseMesh(text string) (*mesh.Mesh, error) {
	return parseWhole(text, (*parser).mesh)
}

// ParseSpec reads what [Spec.String] writes, and what JAX prints.
func ParseSpec(text string) (mesh.Spec, error) {
	return parseWhole(text, (*parser).spec)
}

// ParseSharding reads what [Sharding.String] writes, and what JAX prints.
func ParseSharding(text string) (*mesh.Sharding, error) {
	return parseWhole(text, (*parser).sharding)
}

func parseWhole[T any](text string, read func(*parser) (T, error)) (T, error) {
	var zero T
	if len(text) > maxText {
		return zero, errorf(mesh.ErrFormat, "text of %d bytes, at most %d are read", len(text), maxText)
	}
	p := &parser{text: text}
	out, err := read(p)
	if err != nil {
		return zero, err
	}
	if p.space(); p.pos < len(text) {
		return zero, p.fail("the end")
	}
	return out, nil
}

// A parser reads one text form from left to right.
type parser struct {
	text string
	pos  int
}

func (p *parser) fail(want string) error {
	rest := p.text[p.pos:]
	if len(rest) > 20 {
		cut := 20
		for cut > 0 && !utf8.RuneStart(rest[cut]) {
			cut--
		}
		rest = rest[:cut] + "…"
	}
	if rest == "" {
		rest = "the end of the text"
	} else {
		rest = strconv.Quote(rest)
	}
	return errorf(mesh.ErrFormat, "at byte %d: want %s, got %s", p.pos, want, rest)
}

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// take consumes literal if it comes next.
func (p *parser) take(literal string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], literal) {
		return false
	}
	p.pos += len(literal)
	return true
}

func (p *parser) expect(literal string) error {
	if !p.take(literal) {
		return p.fail(strconv.Quote(literal))
	}
	return nil
}

func isWordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// word reads letters, digits and underscores; it may be empty.
func (p *parser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && isWordRune(rune(p.text[p.pos])) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) number() (int, error) {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && '0' <= p.text[p.pos] && p.text[p.pos] <= '9' {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[start:p.pos], 10, 32)
	if err != nil {
		p.pos = start
		return 0, p.fail("a number")
	}
	return int(n), nil
}

// name reads a name in single or double quotes.
func (p *parser) name() (string, error) {
	p.space()
	if p.pos >= len(p.text) || p.text[p.pos] != '\'' && p.text[p.pos] != '"' {
		return "", p.fail("a quoted name")
	}
	start := p.pos
	end := p.text[p.pos]
	var out strings.Builder
	for p.pos++; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		if c == end {
			p.pos++
			return out.String(), nil
		}
		if c == '\\' {
			if p.pos++; p.pos >= len(p.text) || strings.IndexByte(`\'"`, p.text[p.pos]) < 0 {
				break
			}
			c = p.text[p.pos]
		}
		out.WriteByte(c)
	}
	p.pos = start
	return "", p.fail("a closed name")
}

// list reads items between brackets, separated by commas; a trailing comma is
// fine.
func (p *parser) list(open, end string, item func() error) error {
	if err := p.expect(open); err != nil {
		return err
	}
	for !p.take(end) {
		if err := item(); err != nil {
			return err
		}
		if p.take(",") {
			continue
		}
		if err := p.expect(end); err != nil {
			return p.fail(strconv.Quote(",") + " or " + strconv.Quote(end))
		}
		return nil
	}
	return nil
}

// names reads a list of quoted names.
func (p *parser) names(open, end string) ([]string, error) {
	var out []string
	err := p.list(open, end, func() error {
		n, err := p.name()
		out = append(out, n)
		return err
	})
	return out, err
}

func (p *parser) spec() (mesh.Spec, error) {
	var s mesh.Spec
	if !p.take("PartitionSpec") && !p.take("P") {
		return s, p.fail("P(…)")
	}
	err := p.list("(", ")", func() error { return p.specItem(&s) })
	if err != nil {
		return mesh.Spec{}, err
	}
	return s.Canonical(), s.Check()
}

func (p *parser) specItem(s *mesh.Spec) (err error) {
	p.space()
	start := p.pos
	switch word := p.word(); word {
	case "":
		d, err := p.dim()
		s.Dims = append(s.Dims, d)
		return err
	case "None":
		s.Dims = append(s.Dims, nil)
	case "UNCONSTRAINED":
		s.Dims = append(s.Dims, mesh.Dim{mesh.Unconstrained})
	case "unreduced", "reduced":
		set := &s.Unreduced
		if word == "reduced" {
			set = &s.Reduced
		}
		if err := p.expect("="); err != nil {
			return err
		}
		*set, err = p.names("{", "}")
	case "unreduced_kind":
		if err := p.expect("="); err != nil {
			return err
		}
		if s.Kind = mesh.Reduction(p.word()); s.Kind == "" {
			return p.fail("sum, max or min")
		}
	default:
		p.pos = start
		return p.fail("a spec entry this version knows")
	}
	return err
}

// dim reads a name or a tuple of names. A tuple within a tuple is refused
// (C-SPEC-3).
func (p *parser) dim() (mesh.Dim, error) {
	if p.pos < len(p.text) && p.text[p.pos] != '(' {
		n, err := p.name()
		return mesh.Dim{n}, err
	}
	var out mesh.Dim
	err := p.list("(", ")", func() error {
		if p.space(); strings.HasPrefix(p.text[p.pos:], "(") {
			return p.fail("a name: a tuple cannot contain a nested tuple")
		}
		n, err := p.name()
		out = append(out, n)
		return err
	})
	if len(out) == 0 {
		return nil, err
	}
	return out, err
}

func (p *parser) sharding() (*mesh.Sharding, error) {
	if err := p.expect("NamedSharding(mesh="); err != nil {
		return nil, err
	}
	m, err := p.mesh()
	if err != nil {
		return nil, err
	}
	if err := p.expect(", spec="); err != nil {
		return nil, err
	}
	spec, err := p.spec()
	if err != nil {
		return nil, err
	}
	memory := ""
	if p.take(", memory_kind=") {
		if memory = p.word(); memory == "" {
			return nil, p.fail("a memory kind")
		}
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	s, err := m.Shard(spec)
	if err != nil {
		return nil, err
	}
	return s.WithMemory(memory)
}
