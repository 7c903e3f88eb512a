package mesh

import (
	"slices"
	"strconv"
	"strings"
)

// Shardy is the sharding in the text form of the Shardy dialect, for arrays of
// the given rank. If adapt is set and some axis is Auto, all dimensions become
// open and the Explicit axes that split nothing are pinned (C-SHD-19).
func (s *Sharding) Shardy(rank int, adapt bool) (string, error) {
	if err := s.spec.checkRank(rank); err != nil {
		return "", err
	}
	axes := make([]string, len(s.mesh.axes))
	for i, a := range s.mesh.axes {
		axes[i] = mlirQuote(a.Name) + "=" + strconv.Itoa(a.Size)
	}
	adapt = adapt && len(s.mesh.AxesOf(Auto)) > 0
	dims := make([]string, rank)
	for i := range dims {
		var parts []string
		open := adapt
		if i < len(s.spec.Dims) {
			open = open || s.spec.Dims[i].free()
			if !s.spec.Dims[i].free() {
				parts = mlirNames(s.spec.Dims[i])
			}
		}
		if open {
			parts = append(parts, "?")
		}
		dims[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	out := "#sdy.sharding<mesh<[" + strings.Join(axes, ", ") + "]>, [" + strings.Join(dims, ", ") + "]"
	if pinned := s.pinned(); adapt && len(pinned) > 0 {
		out += ", replicated={" + strings.Join(mlirNames(pinned), ", ") + "}"
	}
	if len(s.spec.Unreduced) > 0 {
		kind := ""
		if s.spec.Kind != Sum {
			kind = string(s.spec.Kind)
		}
		out += ", unreduced=" + kind + "{" + strings.Join(mlirNames(s.inMeshOrder(s.spec.Unreduced)), ", ") + "}"
	}
	return out + ">", nil
}

// pinned lists the Explicit axes the spec does not mention.
func (s *Sharding) pinned() []string {
	explicit := s.mesh.AxesOf(Explicit)
	return slices.DeleteFunc(s.ReplicatedAxes(), func(n string) bool { return !slices.Contains(explicit, n) })
}

func (s *Sharding) inMeshOrder(set []string) []string {
	return slices.DeleteFunc(s.mesh.names(), func(n string) bool { return !slices.Contains(set, n) })
}

func mlirNames(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = mlirQuote(n)
	}
	return out
}

// ParseShardy reads what [Sharding.Shardy] writes without adapt. The form has no
// devices and no axis types: the mesh is abstract and Explicit, but for axes
// that split nothing where a dimension is open, which are Auto.
func ParseShardy(text string) (*Sharding, error) {
	return parseWhole(text, (*parser).shardy)
}

func (p *parser) shardy() (*Sharding, error) {
	if err := p.expect("#sdy.sharding<mesh<"); err != nil {
		return nil, err
	}
	var axes []Axis
	if err := p.list("[", "]", func() error { return p.shardyAxis(&axes) }); err != nil {
		return nil, err
	}
	if err := p.expect(">,"); err != nil {
		return nil, err
	}
	var spec Spec
	if err := p.list("[", "]", func() error { return p.shardyDim(&spec) }); err != nil {
		return nil, err
	}
	if err := p.shardyReduction(&spec); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(spec.Dims, Dim.free) {
		for i := range axes {
			if !spec.uses(axes[i].Name) && !slices.Contains(spec.Unreduced, axes[i].Name) {
				axes[i].Type = Auto
			}
		}
	}
	m, err := Abstract(nil, axes...)
	if err != nil {
		return nil, err
	}
	return m.Shard(spec)
}

func (p *parser) shardyAxis(axes *[]Axis) error {
	name, err := p.mlirName()
	if err != nil {
		return err
	}
	if err := p.expect("="); err != nil {
		return err
	}
	size, err := p.number()
	*axes = append(*axes, Axis{Name: name, Size: size})
	return err
}

func (p *parser) shardyDim(spec *Spec) error {
	var d Dim
	open := false
	err := p.list("{", "}", func() error {
		if p.take("?") {
			open = true
			return nil
		}
		name, err := p.mlirName()
		d = append(d, name)
		return err
	})
	if err == nil && open && len(d) > 0 {
		return p.fail("a dimension that is either open or split, a spec has no other")
	}
	if open {
		d = Dim{Unconstrained}
	}
	spec.Dims = append(spec.Dims, d)
	return err
}

func (p *parser) shardyReduction(spec *Spec) error {
	if p.take(">") {
		return nil
	}
	if err := p.expect(", unreduced="); err != nil {
		return err
	}
	spec.Kind = Reduction(p.word())
	err := p.list("{", "}", func() error {
		name, err := p.mlirName()
		spec.Unreduced = append(spec.Unreduced, name)
		return err
	})
	if err != nil {
		return err
	}
	return p.expect(">")
}

// mlirName reads a name in double quotes with \XX escapes.
func (p *parser) mlirName() (string, error) {
	if err := p.expect(`"`); err != nil {
		return "", err
	}
	var out strings.Builder
	for ; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		if c == '"' {
			p.pos++
			return out.String(), nil
		}
		if c == '\\' {
			if p.pos+2 >= len(p.text) {
				break
			}
			n, err := strconv.ParseUint(p.text[p.pos+1:p.pos+3], 16, 8)
			if err != nil {
				return "", p.fail(`two hexadecimal digits after \`)
			}
			c = byte(n)
			p.pos += 2
		}
		out.WriteByte(c)
	}
	return "", p.fail("a closed name")
}

// mlirQuote writes a name as Shardy's text form does.
func mlirQuote(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			b.WriteString(`\` + strings.ToUpper(strconv.FormatUint(uint64(c>>4), 16)+strconv.FormatUint(uint64(c&15), 16)))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}
