package mesh

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Hybrid orders devices of several fast networks (slices, or tasks with
// Order.ByTask) that are joined by a slow one. inner is the shape within a
// granule, outer the shape across granules; they have one entry per mesh axis,
// and axis k of the result has size inner[k]·outer[k]. The result is in mesh
// order.
func Hybrid(devices []Device, inner, outer []int, o Order) ([]Device, error) {
	if len(inner) != len(outer) {
		return nil, errorf(ErrInvalid, "inner shape %s and outer shape %s differ in rank: "+
			"give every axis a size in both, 1 where it does not extend", notation.Tuple(inner), notation.Tuple(outer))
	}
	granules, err := granulesOf(devices, o)
	if err != nil {
		return nil, err
	}
	if n, ok := boundedProduct(outer, maxDevices); !ok || n != len(granules) {
		return nil, errorf(ErrInvalid, "number of slices %d must equal the product of outer shape %s", len(granules), notation.Tuple(outer))
	}
	blocks := make([][]Device, len(granules))
	for i, g := range granules {
		arranged, err := Arrange(g.devices, inner, Order{Split: o.Split})
		if err != nil {
			return nil, fmt.Errorf("granule %d: %w", g.key, err)
		}
		blocks[i] = arranged
	}
	return weave(blocks, inner, outer), nil
}

type granule struct {
	key     int
	devices []Device
}

func granulesOf(devices []Device, o Order) ([]granule, error) {
	if len(devices) == 0 {
		return nil, errorf(ErrInvalid, "no devices to build a hybrid mesh from")
	}
	if !o.ByTask && devices[0].Slice == NoSlice {
		return nil, errorf(ErrInvalid, "device %d has no slice: set Order.ByTask to take tasks as granules", devices[0].ID)
	}
	var out []granule
	at := make(map[int]int)
	for _, d := range devices {
		key := d.Slice
		if o.ByTask {
			key = int(d.Task)
		}
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			out = append(out, granule{key: key})
		}
		out[i].devices = append(out[i].devices, d)
	}
	if !o.AsListed {
		slices.SortStableFunc(out, func(a, b granule) int { return cmp.Compare(a.key, b.key) })
	}
	return out, nil
}

// weave puts block ix/inner at place ix mod inner (C-MESH-30).
func weave(blocks [][]Device, inner, outer []int) []Device {
	// Laid end to end the blocks have axes outer…, inner…; pairing axis k of
	// both is a transpose.
	rank := len(inner)
	all := grid[Device]{shape: append(slices.Clone(outer), inner...)}
	for _, b := range blocks {
		all.cells = append(all.cells, b...)
	}
	perm := make([]int, 0, 2*rank)
	for k := range rank {
		perm = append(perm, k, rank+k)
	}
	return all.transpose(perm).cells
}
