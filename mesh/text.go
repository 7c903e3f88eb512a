package mesh

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
)

// String is the text form that [ParseMesh] reads back. It is JAX's,
//
//	Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))
//
// followed by what that leaves out: the devices where they are not 0, 1, 2, …
// and the tasks where not all belong to task 0.
//
//	Mesh('x': 4, axis_types=(Auto,), devices=(0:8:2), tasks=(0*2, 1*2))
func (m *Mesh) String() string {
	short := m.brief()
	if m.abstract || m.size == 0 {
		return short
	}
	var extra []string
	if m.ids[0] != 0 || m.size > 1 && (m.ids[1] != 1 || runLength(m.ids) != m.size) {
		extra = append(extra, "devices="+rangeText(m.ids))
	}
	if slices.ContainsFunc(m.tasks, func(t serry.TaskIndex) bool { return t != 0 }) {
		extra = append(extra, "tasks="+repeatText(m.tasks))
	}
	if len(m.axes) == 0 {
		extra = append(extra, "size=1")
	}
	if len(extra) == 0 {
		return short
	}
	sep := ", "
	if len(m.axes) == 0 {
		sep = ""
	}
	return strings.TrimSuffix(short, ")") + sep + strings.Join(extra, ", ") + ")"
}

// brief is the text without devices, for messages.
func (m *Mesh) brief() string {
	name, tail := "Mesh", ""
	if m.abstract {
		name, tail = "AbstractMesh", m.hardwareText()
	}
	if len(m.axes) == 0 {
		return name + "()"
	}
	types := make([]string, len(m.axes))
	for i, a := range m.axes {
		types[i] = a.Type.String()
	}
	comma := ""
	if len(types) == 1 {
		comma = ","
	}
	return fmt.Sprintf("%s(%s, axis_types=(%s%s)%s)", name, sizesText(m.axes), strings.Join(types, ", "), comma, tail)
}

func (m *Mesh) hardwareText() string {
	hw := m.hardware
	if hw.Kind == "" && hw.Platform == "" && hw.Cores == 0 {
		return ""
	}
	cores := "None"
	if hw.Cores != 0 {
		cores = strconv.Itoa(hw.Cores)
	}
	return fmt.Sprintf(", device_kind=%s, num_cores=%s, platform=%s", quote(hw.Kind), cores, quote(hw.Platform))
}

// String is the text form that [ParseSharding] reads back.
func (s *Sharding) String() string {
	memory := ""
	if s.memory != "" {
		memory = ", memory_kind=" + s.memory
	}
	return fmt.Sprintf("NamedSharding(mesh=%s, spec=%s%s)", s.mesh, s.spec, memory)
}

// sizesText is 'x': 4, 'y': 2.
func sizesText(axes []Axis) string {
	parts := make([]string, len(axes))
	for i, a := range axes {
		parts[i] = quote(a.Name) + ": " + strconv.Itoa(a.Size)
	}
	return strings.Join(parts, ", ")
}

// rangeText writes numbers as runs: (0:4, 9, 16:32:2).
func rangeText[T ~int](list []T) string {
	var parts []string
	for i := 0; i < len(list); {
		n := runLength(list[i:])
		if n < 3 {
			parts = append(parts, strconv.Itoa(int(list[i])))
			i++
			continue
		}
		first, step := int(list[i]), int(list[i+1]-list[i])
		text := strconv.Itoa(first) + ":" + strconv.Itoa(first+n*step)
		if step != 1 {
			text += ":" + strconv.Itoa(step)
		}
		parts = append(parts, text)
		i += n
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// runLength counts how far the list goes up in equal steps.
func runLength[T ~int](list []T) int {
	if len(list) < 2 || list[1] <= list[0] {
		return 1
	}
	n := 2
	for n < len(list) && list[n]-list[n-1] == list[1]-list[0] {
		n++
	}
	return n
}

// repeatText writes numbers with counts: (0*4, 1*4, 2).
func repeatText[T ~int](list []T) string {
	var parts []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		text := strconv.Itoa(int(list[i]))
		if n > 1 {
			text += "*" + strconv.Itoa(n)
		}
		parts = append(parts, text)
		i += n
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// quote writes a name in single quotes.
func quote(name string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name) + "'"
}

func quoteAll(names []string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = quote(n)
	}
	return strings.Join(parts, ", ")
}

func taskList(tasks []serry.TaskIndex) string {
	if len(tasks) > 8 {
		return joinInts(tasks[:8], ", ") + ", …"
	}
	return joinInts(tasks, ", ")
}
