package topo

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// An Ordinal is the position of a device within the task that owns it.
type Ordinal int32

// Keys names where the topologies of one platform are kept. A jaxlib client
// writes its keys behind a prefix; others have none (C-TOP-6).
type Keys struct {
	Prefix   string // "cuda:", or empty
	Platform string // "cuda"
}

// JAXKeys returns the keys that jaxlib uses for a platform.
func JAXKeys(platform string) Keys { return Keys{Prefix: platform + ":", Platform: platform} }

// Local is the key of what one task says about itself.
func (k Keys) Local(t serry.TaskIndex) string {
	return k.Prefix + localFamily + "/" + k.Platform + "/" + strconv.Itoa(int(t))
}

// Global is the key of what task 0 says about all.
func (k Keys) Global() string { return k.Prefix + globalFamily + "/" + k.Platform }

// Error is the key where task 0 leaves why there will be no global topology, so
// that the others need not wait for it to the end (C-DINC-12).
func (k Keys) Error() string { return k.Prefix + "topology_error/" + k.Platform }

// Identity is the key of the [TaskRecord] of one task (P-TOP-4).
func (k Keys) Identity(t serry.TaskIndex) string {
	return k.Prefix + identityFamily + "/" + strconv.Itoa(int(t))
}

// NetworkNodesVariable is the environment variable that [NetworkNodes] reads
// the value of.
const NetworkNodesVariable = "XLA_DISTRIBUTED_TOPOLOGY_NETWORK_NODES"

const asciiSpace = " \t\n\v\f\r"

// NetworkNodes reads the names of the switches above a host, highest level
// first: "spine,pod,rack". Pieces of nothing but blanks are dropped, others are
// kept as they are (C-TOP-10).
func NetworkNodes(value string) []string {
	nodes := slices.DeleteFunc(strings.Split(value, ","), func(piece string) bool { return strings.Trim(piece, asciiSpace) == "" })
	if len(nodes) == 0 {
		return nil // as a record without them has it
	}
	return nodes
}

// BootID reads the text of /proc/sys/kernel/random/boot_id: its lines without
// the blanks around them, joined (C-TOP-9).
func BootID(content string) string {
	var id strings.Builder
	for line := range strings.SplitSeq(content, "\n") {
		id.WriteString(strings.Trim(line, asciiSpace))
	}
	return id.String()
}

// cpuDevicesPerTask is how far apart the first devices of two tasks are on the
// CPU platform (C-TOP-42).
const cpuDevicesPerTask = 2048

// cpuDevice numbers a CPU device in the job. The original packs two numbers
// into one and lets them overflow; here that is an error.
func cpuDevice(t serry.TaskIndex, o Ordinal) (serry.DeviceID, error) {
	if t < 0 || t > math.MaxInt32/cpuDevicesPerTask || o < 0 || o >= cpuDevicesPerTask {
		return 0, &serry.InvalidError{What: fmt.Sprintf("no cpu device id for task %d, ordinal %d", t, o)}
	}
	return serry.DeviceID(t)*cpuDevicesPerTask + serry.DeviceID(o), nil
}

// CPULocal is what a task with count CPU devices publishes, in the words that
// jaxlib uses (C-TOP-12). With count 0 it is what a task without devices of a
// platform must publish so that task 0 does not wait for it in vain (C-TOP-36).
func CPULocal(t serry.TaskIndex, bootID string, networkNodes []string, count int) (*topopb.LocalTopologyProto, error) {
	local := &topopb.LocalTopologyProto{ProcessId: int32(t), BootId: bootID, NetworkNodes: networkNodes}
	for o := range Ordinal(count) {
		id, err := cpuDevice(t, o)
		if err != nil {
			return nil, err
		}
		local.Devices = append(local.Devices, &topopb.DeviceProto{
			LocalDeviceOrdinal: int32(o),
			GlobalDeviceId:     int32(id),
			DeviceKind:         "cpu",
			ToString:           fmt.Sprintf("CpuDevice(id=%d)", id),
			DebugString:        fmt.Sprintf("cpu:%d", id),
		})
	}
	return local, nil
}
