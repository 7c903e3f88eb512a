package meshdiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh/form"
)

// fixedSeed is run always, next to a new one.
const fixedSeed = 20260822

func TestAgainstJAX(t *testing.T) {
	lab.Clause(t, "C-MESH-17", "TC-MESH", "TC-SPEC", "TC-SHD", "TC-DATA")
	python := interpreter(t)
	fresh := uint64(time.Now().UnixNano())
	if text := os.Getenv("SERRY_MESH_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SERRY_MESH_SEED=%q: %v", text, err)
		}
		fresh = n
	}
	for _, seed := range []uint64{fixedSeed, fresh} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { differ(t, python, seed) })
	}
}

// differ asks JAX and Go the same questions.
func differ(t *testing.T, python string, seed uint64) {
	t.Logf("run again with SERRY_MESH_SEED=%d", seed)
	d := drawer{rand.New(rand.NewPCG(seed, 0))}
	var questions []question
	for range 1000 {
		questions = append(questions, d.sharding())
	}
	for range 300 {
		questions = append(questions, d.order())
	}
	for range 300 {
		questions = append(questions, d.view())
	}
	answers, version := askJAX(t, python, questions)
	t.Logf("jax %s answered %d questions", version, len(answers))
	var met tally
	wrong := 0
	for i, q := range questions {
		met.count(q, answers[i])
		if diff := difference(q, q.answer(), answers[i]); diff != "" {
			if wrong++; wrong <= 5 {
				text, _ := json.Marshal(q)
				t.Errorf("question %d: %s\nGo (-) and JAX (+) differ:\n%s", i, text, diff)
			}
		}
	}
	if wrong > 5 {
		t.Errorf("and %d more differ", wrong-5)
	}
	met.check(t)
}

// A tally shows that the questions reach what they should.
type tally struct {
	shardings, invalid, unreduced, severalAxes, replicated, orders, orderErrors, nonUniform int
	kinds                                                                                   map[string]int
}

func (n *tally) count(q question, a answer) {
	if n.kinds == nil {
		n.kinds = map[string]int{}
	}
	if a.Error != "" {
		n.kinds[a.Stage+" "+a.Error]++
	}
	switch q.Ask {
	case "sharding":
		n.shardings++
		if a.Error != "" || a.MapError != "" {
			n.invalid++
		}
		if a.Error == "" && len(q.Spec.Unreduced) > 0 {
			n.unreduced++
		}
		for _, e := range q.Spec.Entries {
			if l, ok := e.([]string); ok && len(l) > 1 && a.Error == "" {
				n.severalAxes++
			}
		}
		if a.Replicated {
			n.replicated++
		}
	case "order":
		n.orders++
		if a.Error != "" {
			n.orderErrors++
		}
	case "view":
		if strings.Contains(fmt.Sprint(a.Views), "nonuniform") {
			n.nonUniform++
		}
	}
}

func (n *tally) check(t *testing.T) {
	t.Logf("%+v", *n)
	if n.shardings < 1000 || n.invalid*100 < n.shardings*40 {
		t.Errorf("%d of %d shardings are invalid; want at least 40 %% of 1000", n.invalid, n.shardings)
	}
	for name, got := range map[string]int{"unreduced": n.unreduced, "several axes on a dimension": n.severalAxes, "replicated": n.replicated,
		"orders refused": n.orderErrors, "not uniform": n.nonUniform} {
		if got < 10 {
			t.Errorf("only %d cases are %s; want some", got, name)
		}
	}
	for _, kind := range []string{"mesh invalid", "spec invalid", "sharding invalid", "sharding duplicate", "shape invalid", "shape indivisible",
		"shape unsupported", "order invalid", "order unsupported"} {
		if n.kinds[kind] == 0 {
			t.Errorf("no case fails with %q", kind)
		}
	}
}

// difference compares what JAX can say exactly. Its sets print in any order, so
// text forms are compared by what they mean; parts of tasks have any order, so
// only who shares a part is compared.
func difference(q question, got, want answer) string {
	if got.Error == "" && want.Error == "" && q.Ask == "sharding" {
		if text := readBack(q, want); text != "" {
			return text
		}
		got.Sharding, want.Sharding = "", ""
		got.Spec, want.Spec = "", ""
		got.Mesh, want.Mesh = "", ""
	}
	if q.Ask == "view" && want.Error == "" {
		got.Views, want.Views = shared(got.Views), shared(want.Views)
	}
	got.Text, want.Text = "", ""
	return cmp.Diff(got, want, cmpopts.EquateEmpty())
}

// readBack parses the text forms of JAX and compares them with the case.
func readBack(q question, want answer) string {
	m, _ := q.Mesh.mesh(nil)
	plain := q.Mesh
	plain.IDs = make([]int, len(q.Mesh.IDs))
	for i := range plain.IDs {
		plain.IDs[i] = i
	}
	unordered, _ := plain.mesh(nil) // JAX prints no devices
	if got, err := form.ParseMesh(want.Mesh); len(q.Mesh.Sizes) > 0 && (err != nil || !got.Equal(unordered)) {
		return fmt.Sprintf("ParseMesh(%s) = %v, %v; want %v", want.Mesh, got, err, unordered)
	}
	spec := q.Spec.spec()
	if got, err := form.ParseSpec(want.Spec); err != nil || !got.Equal(spec) {
		return fmt.Sprintf("ParseSpec(%s) = %v, %v; want %v", want.Spec, got, err, spec)
	}
	if len(spec.Unreduced) <= 1 && len(spec.Reduced) <= 1 && spec.String() != want.Spec {
		return fmt.Sprintf("String() = %s; want %s", spec, want.Spec)
	}
	if ascending(q.Mesh.IDs) && len(q.Mesh.Sizes) > 0 && m.String() != want.Mesh {
		return fmt.Sprintf("String() = %s; want %s", m, want.Mesh)
	}
	return ""
}

func ascending(ids []int) bool {
	for i, id := range ids {
		if id != i {
			return false
		}
	}
	return true
}

// shared replaces the part numbers of tasks by the first task with that part.
func shared(views []any) []any {
	out := make([]any, len(views))
	for task := range views {
		row := append([]any{}, views[task].([]any)...)
		for dim := range row {
			v, ok := row[dim].([]any)
			if !ok {
				continue
			}
			for first := range views {
				if other, ok := views[first].([]any)[dim].([]any); ok && other[0] == v[0] {
					row[dim] = []any{first, v[1]}
					break
				}
			}
		}
		out[task] = row
	}
	return out
}

// askJAX runs jaxmesh.py once.
func askJAX(t *testing.T, python string, questions []question) ([]answer, string) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"devices": hostDevices, "cases": questions})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "jaxmesh.py")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s jaxmesh.py: %v\n%s", python, err, errs.Bytes())
	}
	var reply struct {
		JAX     string
		Answers []answer
	}
	if err := json.Unmarshal(out.Bytes(), &reply); err != nil || len(reply.Answers) != len(questions) {
		t.Fatalf("jaxmesh.py gave %d answers to %d questions: %v\n%s", len(reply.Answers), len(questions), err, errs.Bytes())
	}
	return reply.Answers, reply.JAX
}

// interpreter finds the Python that has jax.
func interpreter(t *testing.T) string {
	t.Helper()
	python := os.Getenv("SERRY_JAX_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".cache", "venv", "jax-new", "bin", "python")
	}
	python, err := filepath.Abs(python)
	if err == nil {
		_, err = os.Stat(python)
	}
	if err == nil {
		return python
	}
	const help = "no Python with jax: run scripts/venvs.sh jax-new, or set SERRY_JAX_PYTHON"
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s (%v)", help, err)
	}
	t.Skipf("SKIPPED, NOTHING IS COMPARED: %s (%v)", help, err)
	return ""
}
