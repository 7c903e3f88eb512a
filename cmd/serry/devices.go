package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/mesh/restore"
	"github.com/serry-dev/serry/topo"
)

func newDevices() *cobra.Command {
	q := &deviceQuery{}
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices of a job, what they are, and what changed",
		Long: `List the devices of a job with what each of them is: its host, its kind, and
its uuid or bus address where the host tells. They are those that the ranks of
a running service have published, or those of a manifest.

With --since the devices of an earlier run are looked for among them, by what
they are and not by number:
  same       the same device under the same number
  was 4/2    the device that was number 4, of task 2
  rebooted   the same, but its machine was booted in between
  unproven   the same number, but nothing shows that it is the same device
  new        none of the earlier ones

serry run --state-dir keeps a manifest of the last run; -o manifest makes one.

Exit status: 0 done; 1 there are no devices to list, or a file or the service
does not answer; 2 a mistake in the command line.`,
		Example: `  serry devices
  serry devices -o manifest > before.json
  serry devices --since before.json
  serry devices --manifest after.json --since before.json -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.run(cmd) },
	}
	q.access.define(cmd)
	f := cmd.Flags()
	f.StringVar(&q.manifest, "manifest", "", "`file` with the devices, instead of a running service")
	f.StringVar(&q.since, "since", "", "`file` with the devices of an earlier run, or the state directory of serry run")
	f.StringVar(&q.platform, "platform", "", "`name` of the platform, such as cuda (default all, and cpu where there is no other)")
	f.StringVarP((*string)(&q.format), "output", "o", "", "`format` of the answer: json, yaml, wide for a table that is not cut, or manifest")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{"json", "yaml", "wide", string(asManifest)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const asManifest format = "manifest"

type deviceQuery struct {
	access
	printer
	manifest, since, platform string
}

func (q *deviceQuery) run(cmd *cobra.Command) error {
	if err := q.resolve(cmd); err != nil {
		return seeHelp(cmd, err)
	}
	plain := q.format != asManifest
	if !plain {
		q.format = asTable
	}
	if err := q.printer.open(cmd); err != nil {
		return seeHelp(cmd, fmt.Errorf("%w, or manifest", err))
	}
	found, err := q.find(cmd.Context())
	if err != nil {
		return runError{err}
	}
	if !plain {
		return q.writeManifest(found)
	}
	list := listDevices(found)
	if q.since != "" {
		was, err := readManifest(q.since)
		if err != nil {
			return runError{err}
		}
		if err := list.compare(was.Tasks, found); err != nil {
			return runError{err}
		}
	}
	if done, err := q.object(list); done {
		return err
	}
	return q.show(list)
}

// find gets the records of all tasks, from a file or from a service.
func (q *deviceQuery) find(ctx context.Context) ([]topo.TaskRecord, error) {
	if q.manifest != "" {
		m, err := readManifest(q.manifest)
		if err != nil {
			return nil, err
		}
		return m.Tasks, nil
	}
	r, err := q.access.open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.records(ctx, q.platform)
}

// readManifest reads a manifest, or that in a directory: in the state of serry run that of the run
// before the one that runs now.
func readManifest(name string) (*restore.Manifest, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		dir := name
		name = filepath.Join(dir, launch.PreviousManifest)
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			name = filepath.Join(dir, restore.ManifestFile)
		}
	}
	text, err := readFile(name, topo.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	return restore.ParseManifest(name, []byte(text))
}

// writeManifest prints the devices in the form that --manifest and --since read: in the order of
// their ids, as a mesh of one axis.
func (q *deviceQuery) writeManifest(tasks []topo.TaskRecord) error {
	m := &restore.Manifest{Tasks: tasks, Mesh: restore.Mesh{AxisNames: []string{"device"}}}
	for _, r := range tasks {
		for _, d := range r.Devices {
			m.Mesh.Devices = append(m.Mesh.Devices, d.ID)
		}
	}
	slices.Sort(m.Mesh.Devices)
	m.Mesh.Shape = []int{len(m.Mesh.Devices)}
	for _, r := range m.Tasks {
		for i := range r.Devices {
			r.Devices[i].MeshPosition = nil // that was in another mesh
		}
	}
	text, err := m.Encode()
	if err != nil {
		return runError{err}
	}
	_, err = q.out.Write(append(text, '\n'))
	return err
}

// A deviceList is the answer of serry devices.
type deviceList struct {
	Version int            `json:"version"`
	Devices []listedDevice `json:"devices"`
	Gone    []listedDevice `json:"gone,omitempty"` // were there before and are not
}

// A listedDevice is one device of the list.
type listedDevice struct {
	Device   serry.DeviceID  `json:"device"`
	Task     serry.TaskIndex `json:"task"`
	Host     string          `json:"host,omitempty"`
	Machine  string          `json:"machine_id,omitempty"`
	Boot     string          `json:"boot_id,omitempty"`
	Platform string          `json:"platform,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	Part     *int            `json:"partition,omitempty"`
	Identity string          `json:"identity,omitempty"` // the strongest there is
	Change   string          `json:"change,omitempty"`
	Evidence string          `json:"evidence,omitempty"` // why it is believed to be an earlier one
}

func listDevices(tasks []topo.TaskRecord) *deviceList {
	list := &deviceList{Version: outputVersion, Devices: []listedDevice{}}
	for _, r := range tasks {
		for _, d := range r.Devices {
			list.Devices = append(list.Devices, listDevice(r, d))
		}
	}
	slices.SortStableFunc(list.Devices, func(a, b listedDevice) int {
		return cmp.Or(cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.Device, b.Device))
	})
	return list
}

func listDevice(r topo.TaskRecord, d topo.DeviceRecord) listedDevice {
	return listedDevice{
		Device: d.ID, Task: r.Task, Host: r.Hostname, Machine: r.MachineID, Boot: r.BootID,
		Platform: d.Platform, Kind: d.Kind, Part: r.Partition, Identity: identityText(d),
	}
}

// identityText is the strongest that is known of a device.
func identityText(d topo.DeviceRecord) string {
	switch {
	case d.UUID != "":
		return d.UUID
	case d.Serial != "":
		return "serial " + d.Serial
	case d.PCI != "":
		return "pci " + d.PCI
	case d.Coords != nil && d.Core != nil:
		return fmt.Sprintf("torus %v core %d", d.Coords, *d.Core)
	case d.Coords != nil:
		return fmt.Sprintf("torus %v", d.Coords)
	}
	return ""
}

// compare says of every device what became of it since an earlier run.
func (l *deviceList) compare(was, now []topo.TaskRecord) error {
	matching, err := topo.Match(was, now, topo.ByTask)
	if err != nil {
		return err
	}
	before := map[serry.TaskIndex]topo.TaskRecord{}
	for _, r := range was {
		before[r.Task] = r
	}
	pairs := map[topo.DeviceRef]topo.Pair{}
	for _, p := range matching.Pairs {
		pairs[p.Now] = p
	}
	for i := range l.Devices {
		d := &l.Devices[i]
		p, known := pairs[topo.DeviceRef{Task: d.Task, Device: d.Device}]
		if r := before[d.Task]; !known && len(r.Devices) == 0 && sameMachine(r, *d) {
			here := topo.DeviceRef{Task: d.Task, Device: d.Device} // a launcher knows machines, not always devices
			d.Change, d.Evidence = changeText(topo.Pair{Was: here, Now: here}, r, d.Boot), "same machine"
			continue
		}
		if !known {
			d.Change = "new"
			continue
		}
		d.Change, d.Evidence = changeText(p, before[p.Was.Task], d.Boot), p.Level.String()
	}
	for _, p := range matching.Lost {
		r := before[p.Task]
		at := slices.IndexFunc(r.Devices, func(d topo.DeviceRecord) bool { return d.ID == p.Device })
		l.Gone = append(l.Gone, listDevice(r, r.Devices[at]))
	}
	return nil
}

// sameMachine says whether a device is on the machine of an earlier task. Tasks of jaxlib tell no more
// than a boot.
func sameMachine(was topo.TaskRecord, d listedDevice) bool {
	return was.MachineID != "" && was.MachineID == d.Machine || was.BootID != "" && was.BootID == d.Boot
}

// changeText says in few words what became of a device.
func changeText(p topo.Pair, was topo.TaskRecord, boot string) string {
	var words []string
	if p.Was != p.Now {
		words = append(words, fmt.Sprintf("was %d/%d", p.Was.Device, p.Was.Task))
	}
	switch {
	case p.Level > topo.ByOrdinal && (was.BootID == "" || was.BootID != boot):
		words = append(words, "unproven")
	case was.BootID != "" && boot != "" && was.BootID != boot:
		words = append(words, "rebooted")
	}
	if len(words) == 0 {
		return "same"
	}
	return strings.Join(words, ", ")
}

// show prints the list for people.
func (q *deviceQuery) show(l *deviceList) error {
	t := &table{columns: []column{
		{title: "DEVICE", right: true}, {title: "TASK", right: true}, {title: "HOST", most: 20},
		{title: "KIND", most: 16}, {title: "PART", right: true}, {title: "IDENTITY", most: 20}, {title: "CHANGE"},
	}}
	if q.since == "" { // then the identity has the room
		t.columns = t.columns[:6]
		t.columns[5].most = 0
	}
	row := func(d listedDevice, c colour) {
		part := ""
		if d.Part != nil {
			part = fmt.Sprint(*d.Part)
		}
		cells := texts(fmt.Sprint(d.Device), fmt.Sprint(d.Task), hostText(d), cmp.Or(d.Kind, d.Platform), part, cmp.Or(d.Identity, "-"), d.Change)
		cells[6].colour = c
		t.add(cells[:len(t.columns)]...)
	}
	for _, d := range l.Devices {
		row(d, changeColour(d.Change))
	}
	for _, d := range l.Gone {
		d.Change = "gone"
		row(d, red)
	}
	return q.table(t)
}

// hostText is the best name of a host that there is.
func hostText(d listedDevice) string {
	if name := cmp.Or(d.Host, d.Machine); name != "" || d.Boot == "" {
		return cmp.Or(name, "-")
	}
	return "boot " + fit(d.Boot, 11)
}

func changeColour(change string) colour {
	switch change {
	case "same", "":
		return plain
	case "new":
		return green
	}
	return yellow
}

// records asks a service for what its tasks have published. Without a platform it is all of them,
// but the CPU only where nothing else is.
func (r *remote) records(ctx context.Context, platform string) ([]topo.TaskRecord, error) {
	board, err := r.board(ctx)
	if err != nil {
		return nil, err
	}
	progress := board.Progress()
	if others := slices.DeleteFunc(slices.Clone(progress), func(p topo.Progress) bool { return p.Keys.Platform == "cpu" }); platform == "" && len(others) > 0 {
		progress = others
	}
	var all []topo.TaskRecord
	var waiting []string
	for _, p := range progress {
		if platform != "" && p.Keys.Platform != platform {
			continue
		}
		if !p.Global {
			waiting = append(waiting, p.Keys.Platform+": "+missingText(p))
			continue
		}
		records, err := board.Records(p.Keys)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(waiting) > 0:
		return nil, fmt.Errorf("the topology is not complete yet: %s", strings.Join(waiting, "; "))
	case platform != "":
		return nil, fmt.Errorf("no rank has published devices of platform %q", platform)
	}
	return nil, hinted{errors.New("no rank has published devices"), "ranks do so when jax starts its backend, or by client.Member.Exchange"}
}

// missingText says how far the exchange has come.
func missingText(p topo.Progress) string {
	if len(p.Missing) == 0 {
		return "all ranks have published theirs, rank 0 has not put them together"
	}
	names := make([]string, min(len(p.Missing), maxGaps))
	for i := range names {
		names[i] = fmt.Sprint(p.Missing[i])
	}
	if more := len(p.Missing) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "nothing from ranks " + strings.Join(names, ", ")
}
