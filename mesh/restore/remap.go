package restore

import (
	"fmt"

	"github.com/serry-dev/serry"
)

// An ElasticError says that a job has not the size it had when it saved, where
// that is asked for.
type ElasticError struct {
	What     string // "tasks", "devices", "devices of task 3", "devices in the mesh"
	Was, Now int
}

func (e *ElasticError) Error() string {
	return fmt.Sprintf("%d %s, %d when the step was saved: a restore by device numbers is not elastic", e.Now, e.What, e.Was)
}

// An UnknownDeviceError says that a device of the saved mesh has no counterpart.
type UnknownDeviceError struct {
	Device   serry.DeviceID
	Position int    // in the saved mesh
	Where    string // where it was looked for
}

func (e *UnknownDeviceError) Error() string {
	return fmt.Sprintf("device %d at position %d of the saved mesh is not %s", e.Device, e.Position, e.Where)
}

// checkSize refuses a job of another size than the one that saved, as Orbax
// does (C-RMP-11) and, unlike it, also when only the devices of one task differ.
func checkSize(saved *Metadata, now Table, user Mesh) error {
	if len(saved.Table) != len(now) {
		return &ElasticError{What: "tasks", Was: len(saved.Table), Now: len(now)}
	}
	was, is := 0, 0
	for i := range now {
		was, is = was+len(saved.Table[i]), is+len(now[i])
	}
	if was != is {
		return &ElasticError{What: "devices", Was: was, Now: is}
	}
	for i := range now {
		if len(saved.Table[i]) != len(now[i]) {
			return &ElasticError{What: fmt.Sprintf("devices of task %d", i), Was: len(saved.Table[i]), Now: len(now[i])}
		}
	}
	if len(saved.Mesh) != len(user.Devices) {
		return &ElasticError{What: "devices in the mesh", Was: len(saved.Mesh), Now: len(user.Devices)}
	}
	return nil
}

// RemapByTask makes the mesh in which every device finds the data it wrote, on
// the belief that task i with its j-th device is what it was (C-RMP-7): the way
// Orbax goes by default. Nothing proves the belief; where ranks were shuffled it
// returns a wrong mesh without a word (EX-RMP-5). [NewPlan] asks for proof.
func RemapByTask(saved *Metadata, now Table, user Mesh) (Mesh, error) {
	if err := checkSize(saved, now, user); err != nil {
		return Mesh{}, err
	}
	to := map[serry.DeviceID]serry.DeviceID{}
	for i, row := range saved.Table {
		for j, id := range row {
			to[id] = now[i][j]
		}
	}
	return remapped(saved, user, "owned by any saved task", func(id serry.DeviceID) (serry.DeviceID, bool) {
		n, ok := to[id]
		return n, ok
	})
}

// RemapByID makes the saved mesh again, on the belief that a device id always
// means the same device (C-RMP-8).
func RemapByID(saved *Metadata, now Table, user Mesh) (Mesh, error) {
	present := map[serry.DeviceID]bool{}
	for _, row := range now {
		for _, id := range row {
			present[id] = true
		}
	}
	return remapped(saved, user, "among the present devices", func(id serry.DeviceID) (serry.DeviceID, bool) {
		return id, present[id]
	})
}

func remapped(saved *Metadata, user Mesh, where string, to func(serry.DeviceID) (serry.DeviceID, bool)) (Mesh, error) {
	devices := make([]serry.DeviceID, len(saved.Mesh))
	for i, id := range saved.Mesh {
		n, ok := to(id)
		if !ok {
			return Mesh{}, &UnknownDeviceError{Device: id, Position: i, Where: where}
		}
		devices[i] = n
	}
	return user.with(devices)
}
