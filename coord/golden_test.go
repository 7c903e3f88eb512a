package coord_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
)

// TestGoldenJournals replays the journals of every version that was released, which must give the replies
// that were recorded then. In testdata/journal-vN there is one X.journal for each script X.txt of that
// time, in which every machine has the line of its script that made it, its snapshot then, and its records;
// X.replies says what each record led to.
//
// With -rewrite the present version gets its journals, if it has none, and the replies to them are
// recorded anew. A diff in what was recorded for a release is a machine that contradicts its past.
func TestGoldenJournals(t *testing.T) {
	lab.Clause(t, "NEW-52", "C-LOG-4")
	rewrite := flag.Lookup("rewrite").Value.String() == "true"
	if rewrite {
		writeJournals(t, filepath.Join("testdata", "journal-v"+strconv.Itoa(coord.Version)))
	}
	files, err := filepath.Glob("testdata/journal-v*/*.journal")
	if err != nil || len(files) == 0 {
		t.Fatalf("no journals: %v", err)
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			got := replyLines(t, name)
			recorded := strings.TrimSuffix(name, ".journal") + ".replies"
			if rewrite {
				writeFile(t, recorded, []byte(got))
			}
			want, err := os.ReadFile(recorded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("replies (-recorded +now):\n%s", diff)
			}
		})
	}
}

// writeJournals makes journals of the scripts, unless there are some.
func writeJournals(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		if path == "testdata/limits.txt" { // long keys, and little else
			continue
		}
		var all []byte
		for _, j := range runScript(t, wire.XLA, path).written {
			for _, part := range [][]byte{[]byte(j.begin), j.snapshot, j.records} {
				all = append(binary.AppendUvarint(all, uint64(len(part))), part...)
			}
		}
		writeFile(t, filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), ".txt")+".journal"), all)
	}
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// replyLines replays the journals of a file and shows, for each record, when it was, what it was, and who
// was told what.
func replyLines(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil || len(data) == 0 {
		t.Fatalf("%s: %d bytes, %v", name, len(data), err)
	}
	var b strings.Builder
	for len(data) > 0 {
		var parts [3][]byte
		for i := range parts {
			size, n := binary.Uvarint(data)
			if n <= 0 || size > uint64(len(data)-n) {
				t.Fatalf("%s ends too early", name)
			}
			parts[i], data = data[n:n+int(size)], data[n+int(size):]
		}
		c, err := parse(string(parts[0]))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, c.line)
		m, err := coord.Restore((&script{t: t}).config(c), parts[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		showReplay(t, &b, m, parts[2])
	}
	return b.String()
}

// showReplay steps all records.
func showReplay(t *testing.T, b *strings.Builder, m *coord.Machine, records []byte) {
	t.Helper()
	for len(records) > 0 {
		at, ev, rest, err := coord.ReadRecord(records, nil)
		if err != nil {
			t.Fatal(err)
		}
		records = rest
		fmt.Fprintf(b, "%v %s\n", time.Duration(at), strings.TrimPrefix(fmt.Sprintf("%T", ev), "coord."))
		for _, e := range m.Step(at, ev) {
			if shown := showEffect(e); shown != "" {
				fmt.Fprintln(b, shorten("  "+shown))
			}
		}
	}
	fmt.Fprintln(b, showView(m.View()))
}

// showEffect shows what somebody is told; notes are free to change.
func showEffect(e coord.Effect) string {
	switch e := e.(type) {
	case coord.Reply:
		if e.Err != nil {
			return fmt.Sprintf("#%d %T %v", e.Req, e.Err, e.Err)
		}
		return fmt.Sprintf("#%d %T %+v", e.Req, e.Result, e.Result)
	case coord.Changed:
		return fmt.Sprintf("%v %v/%d", e.Task, e.State, e.Incarnation)
	case coord.Opened:
		return fmt.Sprintf("epoch %d, service %d, %v", e.Epoch, e.Service, e.Jobs)
	}
	return ""
}
