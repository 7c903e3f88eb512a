package form

import (
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Shardy writes a sharding in the text form of the Shardy dialect, for arrays of
// the given rank. If adapt is set and some axis is Auto, all dimensions become
// open and the Explicit axes that split nothing are pinned (C-SHD-19).
func Shardy(s *mesh.Sharding, rank int, adapt bool) (string, error) {
	spec, m := s.Spec(), s.Mesh()
	if err := spec.CheckRank(rank); err != nil {
		return "", err
	}
	axes := notation.JoinFunc(m.Axes(), ", ", func(a mesh.Axis) string { return mlirQuote(a.Name) + "=" + strconv.Itoa(a.Size) })
	adapt = adapt && len(m.AxesOf(mesh.Auto)) > 0
	spec.Dims = append(spec.Dims, make([]mesh.Dim, rank-len(spec.Dims))...)
	dims := notation.JoinFunc(spec.Dims, ", ", func(d mesh.Dim) string {
		switch free := len(d) == 1 && d[0] == mesh.Unconstrained; {
		case free, adapt && len(d) == 0:
			return "{?}"
		case adapt:
			return "{" + mlirNames(d) + ", ?}"
		}
		return "{" + mlirNames(d) + "}"
	})
	out := "#sdy.sharding<mesh<[" + axes + "]>, [" + dims + "]"
	if pinned := pinnedAxes(s); adapt && len(pinned) > 0 {
		out += ", replicated={" + mlirNames(pinned) + "}"
	}
	if len(spec.Unreduced) > 0 {
		kind := ""
		if spec.Kind != mesh.Sum {
			kind = string(spec.Kind)
		}
		out += ", unreduced=" + kind + "{" + mlirNames(inMeshOrder(m, spec.Unreduced)) + "}"
	}
	return out + ">", nil
}

// pinnedAxes lists the Explicit axes the spec does not mention.
func pinnedAxes(s *mesh.Sharding) []string {
	explicit := s.Mesh().AxesOf(mesh.Explicit)
	return slices.DeleteFunc(s.ReplicatedAxes(), func(n string) bool { return !slices.Contains(explicit, n) })
}

func inMeshOrder(m *mesh.Mesh, set []string) []string {
	var out []string
	for _, a := range m.Axes() {
		if slices.Contains(set, a.Name) {
			out = append(out, a.Name)
		}
	}
	return out
}

func mlirNames(names []string) string { return notation.JoinFunc(names, ", ", mlirQuote) }

// mlirQuote writes a name as Shardy's text form does.
func mlirQuote(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			b.WriteString(`\` + strings.ToUpper(strconv.FormatUint(uint64(c>>4), 16)+strconv.FormatUint(uint64(c&15), 16)))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}
