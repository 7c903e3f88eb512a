package mesh

import "github.com/serry-dev/serry/mesh/internal/notation"

// String is the word of the text form.
func (t TileType) String() string {
	if t < 0 || int(t) >= len(tileWords) {
		return "unknown"
	}
	return tileWords[t]
}

var tileWords = []string{"replicated", "maximal", "unknown", "unknown", "manual", "unknown", "unreduced"}

// String is the text form of compilers, which [ParseTile] reads back:
// {devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}.
func (t Tile) String() string {
	switch t.Type {
	case TileTuple:
		return "{" + notation.JoinFunc(t.Tuple, ", ", Tile.String) + "}"
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
	return " last_tile_dims={" + notation.JoinFunc(t.Last, ", ", TileType.String) + "}"
}
