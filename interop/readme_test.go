package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// blocks are the blocks of code of a page, in one language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// blockWith is the first block of a page that has a text in it.
func blockWith(t *testing.T, page, language, text string) string {
	t.Helper()
	for _, b := range blocks(t, page, language) {
		if strings.Contains(b, text) {
			return b
		}
	}
	t.Fatalf("%s has no block of %s with %q", page, language, text)
	return ""
}

// README's program is the one in the examples, and it works as it is pasted: under serry run, and by the two
// variables with the commands that README gives.
func TestReadmeProgram(t *testing.T) {
	const file = "examples/jax/train.py"
	program, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	if shown := blockWith(t, "README.md", "python", "jax.distributed.initialize"); !strings.HasSuffix(string(program), shown) {
		t.Fatalf("README shows another program than %s:\n%s", file, shown)
	}
	skipShort(t)
	t.Parallel()
	python := jaxNew.python(t)
	t.Run("serry run", func(t *testing.T) {
		beside(t, 4)
		r := launch(t, nil, "-n", "4", "--", python, filepath.Join("..", file))
		r.ends(0, "serry: all 4 ranks ended well")
		for task := range 4 {
			r.saidOn(task, fmt.Sprintf("rank %d: 4 of 4 ranks are here", task))
		}
	})
	t.Run("two variables", func(t *testing.T) {
		beside(t, 4)
		srv := serve(t, "--tasks", "4")
		_, commands, _ := strings.Cut(blockWith(t, "README.md", "sh", "JAX_COORDINATOR_ADDRESS"), "\n") // the first line starts the service
		commands = strings.NewReplacer("localhost:8476", srv.addr, "python ", python+" ").Replace(commands) + "wait\n"
		cmd := exec.Command("sh", "-ec", commands)
		cmd.Dir, cmd.Env = "..", environment()
		out, err := cmd.CombinedOutput()
		if n := strings.Count(string(out), "4 of 4 ranks are here"); err != nil || n != 4 {
			t.Fatalf("%s= %v, %d of 4 ranks did their work:\n%s", commands, err, n, out)
		}
	})
}

// TensorFlow's page shows lines of the program that the tests run.
func TestTensorFlowPage(t *testing.T) {
	program, err := os.ReadFile("testdata/tf_worker.py")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(blockWith(t, "docs/TENSORFLOW.md", "python", "configure_coordination_service")) {
		if !strings.Contains(string(program), "  "+line) {
			t.Errorf("%q is not in the program that is tested", line)
		}
	}
}
