package form

import (
	"strings"

	"github.com/serry-dev/serry/mesh"
)

// ParseTile reads what [Tile.String] writes.
func ParseTile(text string) (mesh.Tile, error) {
	return parseWhole(text, func(p *parser) (mesh.Tile, error) { return p.tile(false) })
}

func (p *parser) tile(member bool) (mesh.Tile, error) {
	if p.space(); !member && strings.HasPrefix(p.text[p.pos:], "{{") || strings.HasPrefix(p.text[p.pos:], "{}") {
		return p.tupleTile()
	}
	if err := p.expect("{"); err != nil {
		return mesh.Tile{}, err
	}
	t, err := p.tileBody()
	if err != nil {
		return mesh.Tile{}, err
	}
	return t, p.expect("}")
}

func (p *parser) tupleTile() (mesh.Tile, error) {
	t := mesh.Tile{Type: mesh.TileTuple}
	err := p.list("{", "}", func() error {
		m, err := p.tile(true)
		t.Tuple = append(t.Tuple, m)
		return err
	})
	return t, err
}

func (p *parser) tileBody() (mesh.Tile, error) {
	start := p.pos
	switch word := p.word(); word {
	case "replicated":
		return mesh.Tile{Type: mesh.TileReplicated}, nil
	case "manual":
		return mesh.Tile{Type: mesh.TileManual}, nil
	case "unreduced":
		return mesh.Tile{Type: mesh.TileUnreduced}, nil
	case "unknown":
		return mesh.Tile{Type: mesh.TileUnknown}, nil
	case "maximal":
		if err := p.expect("device="); err != nil {
			return mesh.Tile{}, err
		}
		n, err := p.number()
		return mesh.Tile{Type: mesh.TileMaximal, Devices: []int{n}}, err
	case "devices":
		if err := p.expect("="); err != nil {
			return mesh.Tile{}, err
		}
		return p.tiled()
	}
	p.pos = start
	return mesh.Tile{}, p.fail("a tile this version knows")
}

func (p *parser) tiled() (mesh.Tile, error) {
	dims, err := p.numbers("[", "]")
	if err != nil {
		return mesh.Tile{}, err
	}
	var reshape, perm, devices []int
	if p.take("<=") {
		if reshape, err = p.numbers("[", "]"); err != nil {
			return mesh.Tile{}, err
		}
		perm = make([]int, len(reshape))
		for i := range perm {
			perm[i] = i
		}
		if p.take("T") {
			if perm, err = p.numbers("(", ")"); err != nil {
				return mesh.Tile{}, err
			}
		}
	} else if devices, err = p.plainNumbers(); err != nil {
		return mesh.Tile{}, err
	}
	last, err := p.lastTypes()
	if err != nil {
		return mesh.Tile{}, err
	}
	if devices != nil {
		return mesh.ListedTile(dims, devices, last...)
	}
	return mesh.NewTile(dims, reshape, perm, last...)
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

func (p *parser) lastTypes() ([]mesh.TileType, error) {
	if p.take("last_tile_dim_replicate") {
		return []mesh.TileType{mesh.TileReplicated}, nil
	}
	if !p.take("last_tile_dims=") {
		return nil, nil
	}
	var out []mesh.TileType
	err := p.list("{", "}", func() error {
		start := p.pos
		word := p.word()
		for _, typ := range []mesh.TileType{mesh.TileReplicated, mesh.TileManual, mesh.TileUnreduced} {
			if typ.String() == word {
				out = append(out, typ)
				return nil
			}
		}
		p.pos = start
		return p.fail("replicated, manual or unreduced")
	})
	return out, err
}
