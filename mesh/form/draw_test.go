package form

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
)

func ExampleDraw() {
	m, _ := mesh.New(mesh.Hosts(8, 4), mesh.Axis{Name: "x", Size: 4}, mesh.Axis{Name: "y", Size: 2})
	s, _ := m.Shard(mesh.P(mesh.Dim{"y"}, mesh.Dim{"x"}))
	text, _ := Draw(s, []int{8, 4}, Look{})
	fmt.Print(text)
	// Output:
	// P('y', 'x') of (8, 4), shards of (4, 1), mesh 'x': 4, 'y': 2
	//       0:1   1:2   2:3   3:4
	//     ┌─────┬─────┬─────┬─────┐
	// 0:4 │  0  │  2  │  4  │  6  │
	//     ├─────┼─────┼─────┼─────┤
	// 4:8 │  1  │  3  │  5  │  7  │
	//     └─────┴─────┴─────┴─────┘
}

func ExampleDraw_table() {
	m, _ := mesh.New(mesh.Hosts(64, 8), mesh.Axis{Name: "a", Size: 4}, mesh.Axis{Name: "b", Size: 4}, mesh.Axis{Name: "c", Size: 4})
	s, _ := m.Shard(mesh.P(mesh.Dim{"b"}, mesh.Dim{"a"}, mesh.Dim{}))
	text, _ := Draw(s, []int{8, 8, 8}, Look{Rows: 3})
	fmt.Print(text)
	// Output:
	// P('b', 'a', None) of (8, 8, 8), shards of (2, 2, 8), mesh 'a': 4, 'b': 4, 'c': 4
	// slice            devices  tasks
	// [0:2, 0:2, 0:8]  0:4      0
	// [0:2, 2:4, 0:8]  16:20    2
	// [0:2, 4:6, 0:8]  32:36    4
	// … and 13 more slices
}

func ExampleDrawLinks() {
	m, _ := mesh.New(mesh.Hosts(8, 4), mesh.Axis{Name: "x", Size: 8})
	rows, _ := m.Shard(mesh.P(mesh.Dim{"x"}))
	columns, _ := m.Shard(mesh.P(nil, mesh.Dim{"x"}))
	plan, _ := mesh.Reshard{Shape: []int{1024, 1024}, ElementBytes: 4, From: rows, To: columns}.Plan()
	fmt.Print(DrawLinks("task", plan.TaskLinks(), Look{}))
	// Output:
	// 3 MiB move between tasks, 1 MiB stay
	// from task \ to  0        1        2        3
	// 0               256 KiB  256 KiB  256 KiB  256 KiB
	// 1               256 KiB  256 KiB  256 KiB  256 KiB
	// 2               256 KiB  256 KiB  256 KiB  256 KiB
	// 3               256 KiB  256 KiB  256 KiB  256 KiB
}

func TestLinkTable(t *testing.T) {
	lab.Clause(t, "P-ARR-7")
	m := must(mesh.New(mesh.Hosts(64, 64), axes("x", 64)...))
	plan := must(mesh.Reshard{Shape: []int{64, 64}, ElementBytes: 1, From: must(m.Shard(spec("x"))), To: must(m.Shard(spec("", "x")))}.Plan())
	text := DrawLinks("device", plan.DeviceLinks(), Look{Rows: 2})
	const want = "3.94 KiB move between devices, 64 B stay\n" +
		"from device  to  bytes  ranges  share\n" +
		"0            1   1 B    1         0.0 %\n" +
		"0            2   1 B    1         0.0 %\n" +
		"… and 4030 more links\n"
	if text != want {
		t.Errorf("DrawLinks = %q; want %q", text, want)
	}
}

// TestDrawingsFit is a property: whatever is drawn fits the width and, without
// its colours, is the same text; the SVG is well-formed and has a cell per
// slice.
func TestDrawingsFit(t *testing.T) {
	lab.Clause(t, "P-ARR-5")
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t, "mesh")
		s := must(m.Shard(drawSpec(t, m, rapid.IntRange(0, 3).Draw(t, "rank"), "spec")))
		shape := drawShape(t, s)
		look := Look{Width: rapid.IntRange(40, 100).Draw(t, "width"), Rows: rapid.SampledFrom([]int{0, 3, -1}).Draw(t, "rows")}
		plain := must(Draw(s, shape, look))
		look.Color = true
		if painted := must(Draw(s, shape, look)); escapes.ReplaceAllString(painted, "") != plain || painted == plain && m.Size() > 0 {
			t.Fatalf("colours change the text: %q, %q", painted, plain)
		}
		for line := range strings.Lines(plain) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > look.Width {
				t.Fatalf("line of %d columns in\n%s", n, plain)
			}
		}
		distinct := map[string]bool{}
		for _, sh := range must(s.Shards(shape)) {
			distinct[sh.Index.String()] = true
		}
		svg := must(DrawSVG(s, shape))
		if got := countElements(t, svg, "g"); got != len(distinct) {
			t.Fatalf("SVG has %d cells; want %d\n%s", got, len(distinct), svg)
		}
	})
}

func countElements(t fataler, doc, name string) int {
	n := 0
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("SVG does not parse: %v\n%s", err, doc)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == name {
			n++
		}
	}
}

func TestDrawingsOfLargeMeshes(t *testing.T) {
	lab.Clause(t, "P-ARR-5")
	m := must(mesh.New(mesh.Hosts(1<<15, 1<<12), axes("xyz", 32, 32, 32)...))
	s := must(m.Shard(spec("x", "y", "z")))
	text := must(Draw(s, []int{32, 32, 32}, Look{}))
	if n := strings.Count(text, "\n"); n != 67 || !strings.Contains(text, "and 32704 more slices") {
		t.Errorf("Draw of 32768 slices has %d lines; want a table of 64 rows", n)
	}
	_, err := DrawSVG(s, []int{32, 32, 32})
	wantError(t, "DrawSVG(32768 slices)", err, mesh.ErrInvalid, "too many to draw")
	_, err = Draw(s, []int{33, 32, 32}, Look{})
	wantError(t, "Draw(indivisible)", err, mesh.ErrIndivisible)
	plan := must(mesh.Reshard{Shape: []int{32, 32, 32}, ElementBytes: 1, From: s, To: must(m.Shard(spec("z", "y", "x")))}.Plan())
	_, err = DrawLinksSVG("device", plan.DeviceLinks())
	wantError(t, "DrawLinksSVG(32768 devices)", err, mesh.ErrInvalid, "too many to draw")
}

func TestNamesAreEscaped(t *testing.T) {
	lab.Clause(t, "P-ARR-5")
	m := must(mesh.New(mesh.Hosts(2, 1), mesh.Axis{Name: "<script>&", Size: 2}))
	svg := must(DrawSVG(must(m.Shard(mesh.P(mesh.Dim{"<script>&"}))), []int{2}))
	if strings.Contains(svg, "<script>") {
		t.Errorf("axis name is not escaped in %s", svg)
	}
	links := must(DrawLinksSVG("task", []mesh.Link{{From: 0, To: 1, Bytes: 10, Ranges: 1}, {From: 0, To: 0, Bytes: 5, Ranges: 1}}))
	if got := countElements(t, svg, "g") + countElements(t, links, "g"); got != 4 {
		t.Errorf("%d cells; want 4", got)
	}
}
