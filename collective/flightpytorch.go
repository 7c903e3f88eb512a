package collective

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// WritePyTorch writes the records of a rank in the form that PyTorch's analyser reads (CL-FLR-3): python -m
// torch.distributed.flight_recorder.fr_trace takes a folder with one file for each rank, whose name ends with the number of the
// rank.
//
// The form knows no kinds of reduction, and no operations between two ranks: these are left out. The analyser takes names of known
// libraries only, so the operations are said to be those of Gloo.
func (f *Flight) WritePyTorch(w io.Writer, rank int) error {
	if rank < 0 || rank >= len(f.Tracks) {
		return fmt.Errorf("no rank %d in a clique of %d", rank, len(f.Tracks))
	}
	t := &f.Tracks[rank]
	if t.Silent != "" {
		return fmt.Errorf("nothing is known of rank %d: %s", rank, t.Silent)
	}
	group := pickleTuple{"0", f.Clique}
	entries := pickleList{}
	for i := range t.Records {
		if r := &t.Records[i]; r.All {
			entries = append(entries, r.pytorch(group, len(f.Tracks)))
		}
	}
	ranks := make([]string, len(f.Tracks))
	for i := range ranks {
		ranks[i] = fmt.Sprint(i)
	}
	_, err := w.Write(pickle(pickleDict{
		{"version", pytorchVersion},
		{"pg_config", pickleDict{{"0", pickleDict{{"name", "0"}, {"desc", f.Clique}, {"ranks", "[" + strings.Join(ranks, ", ") + "]"}}}}},
		{"entries", entries},
	}))
	return err
}

// pytorchVersion is that of the form.
const pytorchVersion = "2.10"

// pytorchNames has the names of operations. Those that PyTorch lacks are exchanges between all ranks.
var pytorchNames = map[schedule.Op]string{
	schedule.AllReduce: "all_reduce", schedule.ReduceScatter: "reduce_scatter", schedule.AllGather: "all_gather",
	schedule.AllToAll: "all_to_all", schedule.Broadcast: "broadcast", schedule.Reduce: "reduce", schedule.Gather: "gather",
	schedule.Scatter: "scatter", schedule.Barrier: "barrier",
}

// pytorch is the record as an entry, of an operation of all ranks. Its number is the same on all of them, which the analyser relies
// on.
func (r *Record) pytorch(group pickleTuple, ranks int) pickleDict {
	kind := schedule.Op(r.Kind)
	name, known := pytorchNames[kind]
	if !known {
		name = "all_to_all"
	}
	in, out := r.what.count, r.what.count
	switch kind { // the count is that of a block, or 0 where blocks differ
	case schedule.AllGather, schedule.Gather:
		out *= int64(ranks)
	case schedule.ReduceScatter, schedule.Scatter:
		in *= int64(ranks)
	case schedule.AllToAll:
		in, out = in*int64(ranks), out*int64(ranks)
	}
	state := "started"
	if r.outcome == outcomeDone {
		state = "completed"
	}
	types := pickleList{memory.DType(r.what.dtype).String()}
	return pickleDict{
		{"record_id", int64(r.Seq)}, {"pg_id", int64(0)}, {"process_group", group},
		{"collective_seq_id", int64(r.Seq)}, {"p2p_seq_id", int64(0)}, {"op_id", int64(r.Seq)}, {"is_p2p", false},
		{"profiling_name", "gloo:" + name}, {"state", state}, {"retired", state == "completed"},
		{"time_created_ns", nanoseconds(r.Began)}, {"time_discovered_started_ns", nanoseconds(r.Began)}, {"time_discovered_completed_ns", nanoseconds(r.Ended)},
		{"input_sizes", pickleList{pickleList{in}}}, {"output_sizes", pickleList{pickleList{out}}},
		{"input_dtypes", types}, {"output_dtypes", types}, {"timeout_ms", int64(0)}, {"frames", pickleList{}},
	}
}

// nanoseconds is a time as a number, or nil where there is none.
func nanoseconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

// Values of Python. Others are nil, bool, string and int64.
type (
	pickleTuple [2]string
	pickleList  []any
	pickleDict  []pickleItem
	pickleItem  struct {
		key   string
		value any
	}
)

// pickle is a value in version 2 of Python's pickles: a program for a machine with a stack, which ends with the value on it.
func pickle(v any) []byte { return append(appendPickle([]byte{0x80, 2}, v), '.') }

func appendPickle(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'N')
	case bool:
		if v {
			return append(b, 0x88)
		}
		return append(b, 0x89)
	case int64:
		return binary.LittleEndian.AppendUint64(append(b, 0x8a, 8), uint64(v))
	case string:
		b = binary.LittleEndian.AppendUint32(append(b, 'X'), uint32(len(v)))
		return append(b, v...)
	case pickleTuple:
		return append(appendPickle(appendPickle(b, v[0]), v[1]), 0x86)
	case pickleList:
		b = append(b, ']', '(')
		for _, element := range v {
			b = appendPickle(b, element)
		}
		return append(b, 'e')
	case pickleDict:
		b = append(b, '}', '(')
		for _, item := range v {
			b = appendPickle(appendPickle(b, item.key), item.value)
		}
		return append(b, 'u')
	}
	panic(fmt.Sprintf("a value of type %T", v)) // none is made
}
