package page_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// The types that the files of the page have in their comments fit together. They are checked here only: what is served is what is written.
func TestTypes(t *testing.T) {
	lab.Clause(t, "D-WEB-5")
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	tsc := filepath.Join(root, ".cache", "browser", "node_modules", "typescript", "lib", "tsc.js")
	if err == nil {
		_, err = os.Stat(tsc)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no typescript: %v; scripts/chromium.sh installs it", err)
		}
		t.Skipf("NOT TESTED: the types of the page: %v; scripts/chromium.sh installs typescript", err)
	}
	files, err := filepath.Glob(filepath.Join(root, "web", "files", "*.js"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of the page: %v, %v", files, err)
	}
	args := []string{tsc, "--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals", "--noUnusedParameters", "--noImplicitReturns",
		"--target", "es2023", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable"}
	if out, err := exec.CommandContext(t.Context(), node, append(args, files...)...).CombinedOutput(); err != nil {
		t.Errorf("tsc --checkJs = %v\n%s", err, out)
	}
}
