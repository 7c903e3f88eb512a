package restore

import (
	"slices"

	"github.com/serry-dev/serry"
)

// permuted looks for the mesh in which every device has what it wrote. Such a
// mesh is only of use if it makes all reads local, which the inventories must
// confirm, and is not the target itself.
func (c *chooser) permuted() (*Mesh, []Read, bool) {
	if c.in.Target == nil || c.in.Saved == nil || len(c.in.Saved.Mesh.Devices) != len(c.in.Target.Devices) {
		return nil, nil, false
	}
	substitute := map[serry.DeviceID]serry.DeviceID{} // target device -> the one that has its data
	devices := make([]serry.DeviceID, len(c.in.Target.Devices))
	for i, was := range c.in.Saved.Mesh.Devices {
		now, ok := c.matching.Now(was)
		if !ok {
			return nil, nil, false
		}
		devices[i] = now
		substitute[c.in.Target.Devices[i]] = now
	}
	if slices.Equal(devices, c.in.Target.Devices) || !sameSet(devices, c.in.Target.Devices) {
		return nil, nil, false
	}
	mesh, err := c.in.Target.with(devices)
	if err != nil {
		return nil, nil, false
	}
	reads, ok := c.allLocal(substitute)
	return &mesh, reads, ok
}

// allLocal plans every part at the device that has its data.
func (c *chooser) allLocal(substitute map[serry.DeviceID]serry.DeviceID) ([]Read, bool) {
	served := c.served
	c.served = map[serry.TaskIndex]int64{} // what fails must leave no trace
	defer func() { c.served = served }()
	var all []Read
	for _, a := range c.in.Arrays {
		for _, part := range a.Parts {
			at, ok := substitute[part.Device]
			if !ok {
				return nil, false
			}
			reads, missing := c.fetch(a.Name, Part{at, part.Index})
			if len(missing) > 0 || slices.ContainsFunc(reads, func(r Read) bool { return !r.Local() }) {
				return nil, false
			}
			all = append(all, reads...)
		}
	}
	return all, true
}

func sameSet(a, b []serry.DeviceID) bool {
	x, y := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(x, y) && len(slices.Compact(x)) == len(y)
}
