package mesh

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
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
	if m.ids[0] != 0 || m.size > 1 && (m.ids[1] != 1 || notation.RunLength(m.ids) != m.size) {
		extra = append(extra, "devices="+notation.Runs(m.ids))
	}
	if slices.ContainsFunc(m.tasks, func(t serry.TaskIndex) bool { return t != 0 }) {
		extra = append(extra, "tasks="+notation.Repeats(m.tasks))
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
	comma := ""
	if len(m.axes) == 1 {
		comma = ","
	}
	types := notation.JoinFunc(m.axes, ", ", func(a Axis) string { return a.Type.String() })
	return fmt.Sprintf("%s(%s, axis_types=(%s%s)%s)", name, sizesText(m.axes), types, comma, tail)
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
	return fmt.Sprintf(", device_kind=%s, num_cores=%s, platform=%s", notation.Quote(hw.Kind), cores, notation.Quote(hw.Platform))
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
	return notation.JoinFunc(axes, ", ", func(a Axis) string { return notation.Quote(a.Name) + ": " + strconv.Itoa(a.Size) })
}

func taskList(tasks []serry.TaskIndex) string {
	if len(tasks) > 8 {
		return notation.Join(tasks[:8], ", ") + ", …"
	}
	return notation.Join(tasks, ", ")
}
