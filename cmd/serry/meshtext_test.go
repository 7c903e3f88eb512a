package main

import (
	"strings"
	"testing"

	"github.com/serry-dev/serry/mesh/form"
)

// What people write makes an error or something that can be used, never a crash.
func FuzzMeshText(f *testing.F) {
	f.Add("data=4,model=2 P('data', 'model')", "bf16[8,4]", 4)
	f.Add("Mesh('x': 2, devices=(1, 0)) P(('x',))", "8x4", 0)
	f.Add("NamedSharding(mesh=Mesh('a': 2), spec=P(None, unreduced={'a'}))", "f32[]", 1)
	f.Add("=1 P(", "[", -1)
	f.Fuzz(func(t *testing.T, text, shape string, tasks int) {
		if strings.HasPrefix(text, "@") {
			t.Skip() // reads a file
		}
		array, err := readExtent(shape)
		if err != nil {
			return
		}
		s, err := readSharding(text, tasks)
		if err != nil {
			return
		}
		if s.Mesh().Size() > 1<<12 {
			t.Skip() // takes long, and shows no more
		}
		if _, err := s.ShardShape(array.shape); err != nil {
			return
		}
		if _, err := form.Draw(s, array.shape, form.Look{}); err != nil {
			return
		}
		if again, err := readSharding(s.String(), 0); err != nil || !again.Equal(s) {
			t.Errorf("readSharding(%q) = %v, %v; want what it was written from", s.String(), again, err)
		}
	})
}
