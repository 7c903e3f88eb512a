package client

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// Variables that say what a process runs on, in place of what the host itself tells: for hosts that
// look alike, such as containers of one image, and for tests.
const (
	EnvMachineID   = "SERRY_MACHINE_ID"
	EnvBootID      = "SERRY_BOOT_ID"
	EnvHostname    = "SERRY_HOSTNAME"
	EnvDeviceUUIDs = "SERRY_DEVICE_UUIDS" // one for each device of the process, with commas between them
)

// Identify says what this process runs on, as far as the host tells: the machine and its boot, the
// name of the host, the switches above it, and the NVIDIA devices that the process may use, by
// ordinal. What cannot be found out is empty. Ids of tasks and devices are for the caller.
//
// A machine is known by the uuid of its board, or else by /etc/machine-id. The variables of this
// package ([EnvMachineID] and so on) come first.
func Identify() topo.TaskRecord { return thisHost().identify() }

func thisHost() host {
	return host{files: os.DirFS("/"), env: os.Getenv, hostname: os.Hostname}
}

// A host is what an identity is read from.
type host struct {
	files    fs.FS // from the root
	env      func(string) string
	hostname func() (string, error)
}

func (h host) identify() topo.TaskRecord {
	name, _ := h.hostname() // empty where it is not known
	return topo.TaskRecord{
		MachineID:    cmp.Or(h.env(EnvMachineID), h.boardUUID(), h.line("etc/machine-id")),
		BootID:       h.bootID(),
		Hostname:     cmp.Or(h.env(EnvHostname), name),
		NetworkNodes: topo.NetworkNodes(h.env(topo.NetworkNodesVariable)),
		Devices:      h.devices(),
	}
}

// maxIdentityBytes is more than any of the files has.
const maxIdentityBytes = 64 << 10

// text is the content of a small file, or nothing.
func (h host) text(name string) string {
	f, err := h.files.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxIdentityBytes)) // as much as can be read
	return string(b)
}

func (h host) line(name string) string { return strings.TrimSpace(h.text(name)) }

func (h host) bootID() string {
	return cmp.Or(h.env(EnvBootID), topo.BootID(h.text("proc/sys/kernel/random/boot_id")))
}

// boardUUID is the uuid of the board, which only root may read. Boards whose maker did not set it
// have one of few well known values, which say nothing.
func (h host) boardUUID() string {
	id := strings.ToLower(h.line("sys/class/dmi/id/product_uuid"))
	digits := strings.ReplaceAll(id, "-", "")
	if strings.Trim(digits, "0") == "" || strings.Trim(digits, "f") == "" || strings.HasPrefix(id, "03000200-0400-0500-0006-") {
		return ""
	}
	return id
}

// devices lists the NVIDIA devices that this process may use. The driver shows them by bus address,
// which is the order that CUDA counts in where all are of one kind.
func (h host) devices() []topo.DeviceRecord {
	infos, _ := fs.Glob(h.files, "proc/driver/nvidia/gpus/*/information") // the pattern is well formed
	slices.Sort(infos)
	var all []topo.DeviceRecord
	for _, name := range infos {
		if d, ok := nvidiaDevice(h.text(name)); ok {
			all = append(all, d)
		}
	}
	all = visible(all, h.env("CUDA_VISIBLE_DEVICES"))
	if list := h.env(EnvDeviceUUIDs); list != "" {
		all = named(all, strings.Split(list, ","))
	}
	for i := range all {
		all[i].Ordinal = topo.Ordinal(i)
	}
	return all
}

// nvidiaDevice reads what the driver says of one device: lines of a name, a colon and a value.
func nvidiaDevice(text string) (topo.DeviceRecord, bool) {
	d := topo.DeviceRecord{Platform: "cuda"}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "Model":
			d.Kind = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // not known until the device is first used
				d.UUID = value
			}
		case "Bus Location":
			d.PCI = value
		case "GPU Excluded":
			if value == "Yes" {
				return d, false
			}
		}
	}
	return d, d.UUID != "" || d.PCI != ""
}

// visible picks devices as CUDA does: by number or by the beginning of their uuid, up to the first
// that is not there. Without a list all are visible.
func visible(all []topo.DeviceRecord, list string) []topo.DeviceRecord {
	if list == "" {
		return all
	}
	var picked []topo.DeviceRecord
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		at, err := strconv.Atoi(word)
		if err != nil {
			at = slices.IndexFunc(all, func(d topo.DeviceRecord) bool { return word != "" && strings.HasPrefix(d.UUID, word) })
		}
		if at < 0 || at >= len(all) {
			break
		}
		picked = append(picked, all[at])
	}
	return picked
}

// named gives devices the uuids of a list, and makes those that are not there.
func named(all []topo.DeviceRecord, uuids []string) []topo.DeviceRecord {
	for i, uuid := range uuids {
		if i == len(all) {
			all = append(all, topo.DeviceRecord{})
		}
		all[i].UUID = strings.TrimSpace(uuid)
	}
	return all
}

// record is what a task publishes of itself beside its topology (P-TOP-4): what it runs on, with the
// devices of the topology. Those that have no id of their own yet are numbered from 0.
func (h host) record(e topo.Exchange, local *topopb.LocalTopologyProto) *topo.TaskRecord {
	platform := e.Keys.Platform
	r := h.identify()
	r.Task, r.Tasks = serry.TaskIndex(local.GetProcessId()), e.Tasks
	r.BootID = cmp.Or(local.GetBootId(), r.BootID) // the same word in both
	known := map[topo.Ordinal]topo.DeviceRecord{}
	for _, d := range r.Devices {
		if d.Platform == "" || d.Platform == platform {
			known[d.Ordinal] = d
		}
	}
	r.Devices = make([]topo.DeviceRecord, len(local.GetDevices()))
	for i, d := range local.GetDevices() {
		k := known[topo.Ordinal(d.GetLocalDeviceOrdinal())]
		k.ID, k.Ordinal, k.Platform = serry.DeviceID(d.GetGlobalDeviceId()), topo.Ordinal(d.GetLocalDeviceOrdinal()), platform
		if e.Assign {
			k.ID = serry.DeviceID(i)
		}
		k.Kind, k.Fabric = cmp.Or(d.GetDeviceKind(), d.GetName(), k.Kind), d.GetFabricUuid()
		r.Devices[i] = k
	}
	return &r
}
