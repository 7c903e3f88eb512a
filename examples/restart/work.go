package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/restore"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// What tasks are told by environment, beside what client reads.
const (
	envVerb = "RESTART_VERB"
	envDir  = "RESTART_DIR"

	verbSave    = "save"
	verbRestore = "restore"
)

const (
	step      = 100
	arrayName = "W"
	perTask   = 2 // devices
)

// shape is that of the array; element i of it has the value i.
var shape = []int{8, 4}

// A worker is one task of the job.
type worker struct {
	out    io.Writer
	member *client.Member
	tasks  int
	self   serry.TaskIndex
	all    []topo.TaskRecord // what every task runs on
	layout *mesh.Sharding

	disk, store folder
}

// work is what a task does.
func work(ctx context.Context, out io.Writer, verb string) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	w := &worker{out: out, member: m, tasks: tasks, self: serry.TaskIndex(cfg.Task.Index)}
	if err := w.meet(ctx); err != nil {
		return err
	}
	dir, own := os.Getenv(envDir), w.all[w.self]
	w.disk, w.store = folder(filepath.Join(dir, "disk-"+own.MachineID)), folder(filepath.Join(dir, "store"))
	switch verb {
	case verbSave:
		err = w.save(ctx)
	case verbRestore:
		err = w.restore(ctx)
	default:
		err = fmt.Errorf("unknown verb %q", verb)
	}
	return errors.Join(err, m.Leave(ctx))
}

// meet finds out with the others which devices there are, what they are, and which task has which part.
func (w *worker) meet(ctx context.Context) error {
	local := &topopb.LocalTopologyProto{ProcessId: int32(w.self), BootId: client.Identify().BootID}
	for i := range int32(perTask) {
		local.Devices = append(local.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: i, DeviceKind: "pretended"})
	}
	keys := topo.JAXKeys("cuda")
	found, err := w.member.Exchange(ctx, topo.Exchange{Keys: keys, Tasks: w.tasks, Assign: true}, local)
	if err != nil {
		return err
	}
	board := topo.NewBoard(w.tasks)
	global, err := topo.Encode(found.Global)
	if err != nil {
		return err
	}
	board.Insert(keys.Global(), global)
	for task := range serry.TaskIndex(w.tasks) {
		value, err := w.member.KV().Wait(ctx, keys.Identity(task))
		if err != nil {
			return err
		}
		board.Insert(keys.Identity(task), value)
	}
	if w.all, err = board.Records(keys); err != nil {
		return err
	}
	m, err := mesh.New(mesh.Hosts(w.tasks*perTask, w.tasks), mesh.Axis{Name: "data", Size: w.tasks}, mesh.Axis{Name: "model", Size: perTask})
	if err != nil {
		return err
	}
	w.layout, err = m.Shard(mesh.P(mesh.Dim{"data"}, mesh.Dim{"model"}))
	return err
}

// value is the part of the array that the program would have computed.
func value(x mesh.Index) []byte {
	whole := mesh.Block{Shape: shape, Element: mesh.Element{Name: "uint8", Bytes: 1}}
	for i := range shape[0] * shape[1] {
		whole.Data = append(whole.Data, byte(i))
	}
	return whole.Slice(x).Data
}

// save writes every shard to the disk of its host, and to the store.
func (w *worker) save(ctx context.Context) error {
	shards, err := w.layout.LocalShards(shape, w.self)
	if err != nil {
		return err
	}
	held := &restore.Inventory{Step: step, Task: w.self, Arrays: []restore.StoredArray{{Name: arrayName, Shape: shape, Type: "uint8"}}}
	for _, s := range shards {
		data := value(s.Index)
		entry := restore.StoredShard{Index: s.Index, File: fmt.Sprintf("%s-%d", arrayName, s.Device), Bytes: int64(len(data)), Digest: digest(data)}
		held.Arrays[0].Shards = append(held.Arrays[0].Shards, entry)
		if err := errors.Join(w.disk.write(entry.File, data), w.store.write(entry.File, data)); err != nil {
			return err
		}
		fmt.Fprintf(w.out, "device %d saves %s%v on %s\n", s.Device, arrayName, entry.Index, w.all[w.self].Hostname)
	}
	if err := w.tell(ctx, held); err != nil {
		return err
	}
	manifest := w.manifest()
	if err := errors.Join(w.disk.index(held), w.disk.manifest(manifest)); err != nil || w.self != 0 {
		return err
	}
	all, err := w.hear(ctx)
	if err != nil {
		return err
	}
	for _, other := range all[1:] { // the store has what all have
		held.Arrays[0].Shards = append(held.Arrays[0].Shards, other.Arrays[0].Shards...)
	}
	return errors.Join(w.store.index(held), w.store.manifest(manifest))
}

// manifest says what the devices of this run are and where they stand in the mesh.
func (w *worker) manifest() *restore.Manifest {
	m := &restore.Manifest{Job: "restart", Epoch: 1, Tasks: w.all}
	for _, a := range w.layout.Mesh().Axes() {
		m.Mesh.Shape, m.Mesh.AxisNames = append(m.Mesh.Shape, a.Size), append(m.Mesh.AxisNames, a.Name)
	}
	m.Mesh.Devices = w.layout.Mesh().Devices()
	return m
}

// restore finds out what every disk holds, plans, and reads.
func (w *worker) restore(ctx context.Context) error {
	held, err := w.disk.readIndex()
	if err != nil {
		return err
	}
	if err := w.tell(ctx, held); err != nil {
		return err
	}
	plan, err := w.plan(ctx)
	if err != nil {
		return err
	}
	if w.self == 0 {
		fmt.Fprint(w.out, plan.Explain())
	}
	reads, serves := plan.For(w.self)
	for _, r := range serves {
		data, err := w.disk.read(r.Shard)
		if err != nil {
			return err
		}
		if err := w.member.KV().Put(ctx, partKey(r), data); err != nil {
			return err
		}
	}
	for _, r := range reads {
		if err := w.read(ctx, r); err != nil {
			return err
		}
	}
	return w.member.Barrier(ctx, "restored", serry.BarrierOptions{}) // a task that has to serve must not leave
}

// plan makes the plan of the restore, which all tasks come to alike.
func (w *worker) plan(ctx context.Context) (*restore.Plan, error) {
	in := restore.Input{Step: step}
	var err error
	if in.Saved, err = w.store.readManifest(); err != nil {
		return nil, err
	}
	if in.Store, err = w.store.readIndex(); err != nil {
		return nil, err
	}
	held, err := w.hear(ctx)
	if err != nil {
		return nil, err
	}
	for i, r := range w.all {
		in.Live = append(in.Live, restore.Live{Record: r, Held: held[i]})
	}
	shards, err := w.layout.Shards(shape)
	if err != nil {
		return nil, err
	}
	wanted := restore.Array{Name: arrayName, Shape: shape, Type: "uint8"}
	for _, s := range shards {
		wanted.Parts = append(wanted.Parts, restore.Part{Device: s.Device, Index: s.Index})
	}
	in.Arrays = []restore.Array{wanted}
	return restore.NewPlan(in)
}

// read gets one part and holds it against what it must be.
func (w *worker) read(ctx context.Context, r restore.Read) (err error) {
	var data []byte
	from := "its own disk"
	switch {
	case r.Local():
		data, err = w.disk.read(r.Shard)
	case r.From == restore.FromStore:
		from = "the store"
		data, err = w.store.read(r.Shard)
	default:
		from = fmt.Sprintf("task %d", r.From)
		data, err = w.member.KV().Wait(ctx, partKey(r))
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(data, value(r.Index)) {
		return fmt.Errorf("device %d got %v for %v", r.Device, data, r.Index)
	}
	fmt.Fprintf(w.out, "device %d on %s has %s%v, from %s, file %s\n", r.Device, w.all[w.self].Hostname, r.Array, r.Index, from, r.Shard.File)
	return nil
}

func partKey(r restore.Read) string {
	return fmt.Sprintf("restart/part/%d/%s", r.Device, r.Shard.File)
}

// tell lets the others know what this task holds, which may be nothing.
func (w *worker) tell(ctx context.Context, held *restore.Inventory) error {
	var text []byte
	if held != nil {
		var err error
		if text, err = held.Encode(); err != nil {
			return err
		}
	}
	return w.member.KV().Put(ctx, indexKey(w.self), text)
}

// hear waits for what all tasks hold, by number.
func (w *worker) hear(ctx context.Context) ([]*restore.Inventory, error) {
	all := make([]*restore.Inventory, w.tasks)
	for i := range all {
		key := indexKey(serry.TaskIndex(i))
		text, err := w.member.KV().Wait(ctx, key)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(text)) == "" {
			continue
		}
		if all[i], err = restore.ParseInventory(key, text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func indexKey(t serry.TaskIndex) string { return fmt.Sprintf("restart/index/%d", t) }
