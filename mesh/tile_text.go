package mesh

import (
	"strings"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// String is the word of the text form.
func (t TileType) String() string {
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
		return "{maximal device=" + notation.Join(t.Devices, ",") + "}"
	case Tiled:
	default:
		return "{" + t.Type.String() + "}"
	}
	out := "{devices=[" + notation.Join(t.Dims, ",") + "]"
	if t.Devices != nil {
		out += notation.Join(t.Devices, ",")
	} else {
		out += "<=[" + notation.Join(t.Reshape, ",") + "]"
		if len(t.Perm) > 1 {
			out += "T(" + notation.Join(t.Perm, ",") + ")"
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
		words[i] = typ.String()
	}
	return " last_tile_dims={" + strings.Join(words, ", ") + "}"
}
