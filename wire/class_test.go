package wire

import "testing"

func TestClass(t *testing.T) {
	for id, want := range map[string]string{
		"": "", "save": "save", "save-100": "save-#", "1": "#", "a/12/b3": "a/#/b#", "größe-9": "größe-#",
	} {
		if got := Class(id); got != want {
			t.Errorf("Class(%q) = %q; want %q", id, got, want)
		}
	}
}
