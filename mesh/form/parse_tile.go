package form

import (
	"strings"

	"github.com/serry-dev/serry/mesh"
)

// ParseTile reads what [Tile.String] writes.
func ParseTile(text string) (mesh.Tile, error) {
	return parseWhole(text, func(p *parser) mesh.Tile { return p.tile(false) })
}

func (p *parser) tile(member bool) mesh.Tile {
	if p.space(); !member && strings.HasPrefix(p.text[p.pos:], "{{") || strings.HasPrefix(p.text[p.pos:], "{}") {
		return mesh.Tile{Type: mesh.TileTuple, Tuple: items(p, "{", "}", func() mesh.Tile { return p.tile(true) })}
	}
	p.expect("{")
	t := p.tileBody()
	p.expect("}")
	return t
}

func (p *parser) tileBody() mesh.Tile {
	start := p.pos
	switch p.word() {
	case "replicated":
		return mesh.Tile{Type: mesh.TileReplicated}
	case "manual":
		return mesh.Tile{Type: mesh.TileManual}
	case "unreduced":
		return mesh.Tile{Type: mesh.TileUnreduced}
	case "unknown":
		return mesh.Tile{Type: mesh.TileUnknown}
	case "maximal":
		p.expect("device=")
		return mesh.Tile{Type: mesh.TileMaximal, Devices: []int{p.number()}}
	case "devices":
		p.expect("=")
		return p.tiled()
	}
	p.wantAt(start, "a tile this version knows")
	return mesh.Tile{}
}

func (p *parser) tiled() mesh.Tile {
	dims := items(p, "[", "]", p.number)
	var reshape, perm, devices []int
	if p.take("<=") {
		reshape = items(p, "[", "]", p.number)
		for i := range reshape {
			perm = append(perm, i)
		}
		if p.take("T") {
			perm = items(p, "(", ")", p.number)
		}
	} else {
		devices = []int{p.number()}
		for p.take(",") {
			devices = append(devices, p.number())
		}
	}
	last := p.lastTypes()
	if p.err != nil {
		return mesh.Tile{}
	}
	var t mesh.Tile
	var err error
	if devices != nil {
		t, err = mesh.ListedTile(dims, devices, last...)
	} else {
		t, err = mesh.NewTile(dims, reshape, perm, last...)
	}
	p.fail(err)
	return t
}

func (p *parser) lastTypes() []mesh.TileType {
	if p.take("last_tile_dim_replicate") {
		return []mesh.TileType{mesh.TileReplicated}
	}
	if !p.take("last_tile_dims=") {
		return nil
	}
	return items(p, "{", "}", func() mesh.TileType {
		start := p.pos
		word := p.word()
		for _, typ := range []mesh.TileType{mesh.TileReplicated, mesh.TileManual, mesh.TileUnreduced} {
			if typ.String() == word {
				return typ
			}
		}
		p.wantAt(start, "replicated, manual or unreduced")
		return 0
	})
}
