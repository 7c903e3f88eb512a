package mesh

import "strings"

// words of the tile text form, by type.
func (t TileType) word() string {
	switch t {
	case TileReplicated:
		return "replicated"
	case TileMaximal:
		return "maximal"
	case TileManual:
		return "manual"
	case TileUnreduced:
		return "unreduced"
	}
	return "unknown"
}

// String is the text form of compilers, which [ParseTile] reads back:
// {devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}.
func (t Tile) String() string {
	switch t.Type {
	case TileTuple:
		parts := make([]string, len(t.Tuple))
		for i, m := range t.Tuple {
			parts[i] = m.String()
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case TileMaximal:
		return "{maximal device=" + joinInts(t.Devices, ",") + "}"
	case Tiled:
	default:
		return "{" + t.Type.word() + "}"
	}
	out := "{devices=[" + joinInts(t.Dims, ",") + "]"
	if t.Devices != nil {
		out += joinInts(t.Devices, ",")
	} else {
		out += "<=[" + joinInts(t.Reshape, ",") + "]"
		if len(t.Perm) > 1 {
			out += "T(" + joinInts(t.Perm, ",") + ")"
		}
	}
	return out + t.lastText() + "}"
}

func (t Tile) lastText() string {
	if len(t.Last) == 0 {
		return ""
	}
	if len(t.Last) == 1 && t.Last[0] == TileReplicated {
		return " last_tile_dim_replicate"
	}
	words := make([]string, len(t.Last))
	for i, typ := range t.Last {
		words[i] = typ.word()
	}
	return " last_tile_dims={" + strings.Join(words, ", ") + "}"
}

// ParseTile reads what [Tile.String] writes.
func ParseTile(text string) (Tile, error) {
	return parseWhole(text, func(p *parser) (Tile, error) { return p.tile(false) })
}

func (p *parser) tile(member bool) (Tile, error) {
	if p.space(); !member && strings.HasPrefix(p.text[p.pos:], "{{") || strings.HasPrefix(p.text[p.pos:], "{}") {
		return p.tupleTile()
	}
	if err := p.expect("{"); err != nil {
		return Tile{}, err
	}
	t, err := p.tileBody()
	if err != nil {
		return Tile{}, err
	}
	return t, p.expect("}")
}

func (p *parser) tupleTile() (Tile, error) {
	t := Tile{Type: TileTuple}
	err := p.list("{", "}", func() error {
		m, err := p.tile(true)
		t.Tuple = append(t.Tuple, m)
		return err
	})
	return t, err
}

func (p *parser) tileBody() (Tile, error) {
	start := p.pos
	switch word := p.word(); word {
	case "replicated":
		return Tile{Type: TileReplicated}, nil
	case "manual":
		return Tile{Type: TileManual}, nil
	case "unreduced":
		return Tile{Type: TileUnreduced}, nil
	case "unknown":
		return Tile{Type: TileUnknown}, nil
	case "maximal":
		if err := p.expect("device="); err != nil {
			return Tile{}, err
		}
		n, err := p.number()
		return Tile{Type: TileMaximal, Devices: []int{n}}, err
	case "devices":
		if err := p.expect("="); err != nil {
			return Tile{}, err
		}
		return p.tiled()
	}
	p.pos = start
	return Tile{}, p.fail("a tile this version knows")
}

func (p *parser) tiled() (Tile, error) {
	dims, err := p.numbers("[", "]")
	if err != nil {
		return Tile{}, err
	}
	var reshape, perm, devices []int
	if p.take("<=") {
		if reshape, err = p.numbers("[", "]"); err != nil {
			return Tile{}, err
		}
		perm = counting([]int{len(reshape)}).cells
		if p.take("T") {
			if perm, err = p.numbers("(", ")"); err != nil {
				return Tile{}, err
			}
		}
	} else if devices, err = p.plainNumbers(); err != nil {
		return Tile{}, err
	}
	last, err := p.lastTypes()
	if err != nil {
		return Tile{}, err
	}
	if devices != nil {
		return ListedTile(dims, devices, last...)
	}
	return NewTile(dims, reshape, perm, last...)
}

// numbers reads a bracketed list of numbers.
func (p *parser) numbers(open, end string) ([]int, error) {
	var out []int
	err := p.list(open, end, func() error {
		n, err := p.number()
		out = append(out, n)
		return err
	})
	return out, err
}

// plainNumbers reads 0,1,2.
func (p *parser) plainNumbers() ([]int, error) {
	var out []int
	for {
		n, err := p.number()
		if err != nil {
			return nil, err
		}
		if out = append(out, n); !p.take(",") {
			return out, nil
		}
	}
}

func (p *parser) lastTypes() ([]TileType, error) {
	if p.take("last_tile_dim_replicate") {
		return []TileType{TileReplicated}, nil
	}
	if !p.take("last_tile_dims=") {
		return nil, nil
	}
	var out []TileType
	err := p.list("{", "}", func() error {
		start := p.pos
		word := p.word()
		for _, typ := range []TileType{TileReplicated, TileManual, TileUnreduced} {
			if typ.word() == word {
				out = append(out, typ)
				return nil
			}
		}
		p.pos = start
		return p.fail("replicated, manual or unreduced")
	})
	return out, err
}
