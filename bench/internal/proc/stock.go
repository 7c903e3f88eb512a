package proc

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// DefaultPython is the interpreter with the jaxlib to compare with, from the root of the repository.
const DefaultPython = ".cache/venv/jax-new/bin/python"

//go:embed stock.py
var stockScript string

// CheckPython says what to do if there is no interpreter.
func CheckPython(python string) error {
	if _, err := os.Stat(python); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there: run scripts/venvs.sh jax-new", python)
	} else if err != nil {
		return err
	}
	return nil
}

// Stock is the command of the coordination service that ships in jaxlib, for a number of tasks.
func Stock(python, host string, tasks int) []string {
	return []string{python, "-c", stockScript, host, strconv.Itoa(tasks)}
}
