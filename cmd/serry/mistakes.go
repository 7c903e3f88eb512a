package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// seeHelp adds to a mistake in the command line, unless it has a hint already, where help is.
func seeHelp(cmd *cobra.Command, err error) error {
	_, has := errors.AsType[hinted](err)
	_, ran := errors.AsType[runError](err)
	if err == nil || has || ran {
		return err
	}
	return hinted{err, fmt.Sprintf("see %s --help", cmd.CommandPath())}
}

// flagMistake says in plain words what is wrong with a flag, and which flag may have been meant.
func flagMistake(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, missing)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return seeHelp(cmd, fmt.Errorf("--%s %w", wrong.GetFlag().Name, valueMistake(wrong)))
	}
	if empty, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return seeHelp(cmd, fmt.Errorf("--%s: want a value after it", empty.GetFlag().Name))
	}
	return seeHelp(cmd, err)
}

func unknownFlag(cmd *cobra.Command, missing *pflag.NotExistError) error {
	if letters := missing.GetSpecifiedShortnames(); letters != "" {
		return seeHelp(cmd, fmt.Errorf("%s has no flag -%s", cmd.CommandPath(), missing.GetSpecifiedName()))
	}
	typed := missing.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	err := fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), typed)
	if near := nearest(typed, names); near != "" {
		return hinted{err, fmt.Sprintf("did you mean --%s? see %s --help", near, cmd.CommandPath())}
	}
	return seeHelp(cmd, err)
}

// valueMistake says what kind of value a flag wants. The words of package strconv are for programmers.
func valueMistake(wrong *pflag.InvalidValueError) error {
	value := wrong.GetValue()
	switch wrong.GetFlag().Value.Type() {
	case "int", "int64":
		if errors.Is(wrong, strconv.ErrRange) {
			return fmt.Errorf("%q: the number is too large", value)
		}
		return fmt.Errorf("%q: want a whole number", value)
	case "duration":
		return fmt.Errorf("%q: want a duration, such as 30s or 5m", value)
	case "bool":
		return fmt.Errorf("%q: want true or false", value)
	case "stringToInt64":
		return fmt.Errorf("%q: want name=number,...", value)
	}
	return fmt.Errorf("%q: %w", value, wrong.Unwrap())
}

// unknownCommand says which command may have been meant, if err says that there is none of that name.
func unknownCommand(root *cobra.Command, args []string, err error) error {
	cmd, rest, missing := root.Find(args)
	if missing == nil || err == nil {
		return err
	}
	i := slices.IndexFunc(rest, func(s string) bool { return !strings.HasPrefix(s, "-") })
	if i < 0 {
		return err
	}
	return noSuchCommand(cmd, rest[i])
}

func noSuchCommand(cmd *cobra.Command, typed string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	err := fmt.Errorf("%s has no command %q", cmd.CommandPath(), typed)
	if near := nearest(typed, names); near != "" {
		return hinted{err, fmt.Sprintf("did you mean %s %s? see %s --help", cmd.CommandPath(), near, cmd.CommandPath())}
	}
	return seeHelp(cmd, err)
}

// noArguments is for commands that take none.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return noSuchCommand(cmd, args[0])
	}
	return seeHelp(cmd, fmt.Errorf("%s takes no arguments, and %q is one", cmd.CommandPath(), args[0]))
}

// anyNumber is for the most arguments of a command that takes as many as there are.
const anyNumber = 1 << 30

// arguments is for commands that take from least to most of them. The names are those of the usage line.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && n <= most {
			return nil
		}
		_, names, _ := strings.Cut(cmd.Use, " ")
		return seeHelp(cmd, fmt.Errorf("%s wants %s, and got %s", cmd.CommandPath(), names, counted(len(args), "argument")))
	}
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// nearest is the one of some names that was most likely meant, or empty if none is like what was typed.
func nearest(typed string, names []string) string {
	best, least := "", 1+max(1, (len(typed)+2)/3)
	for _, name := range names {
		d := edits(typed, name)
		begins := typed != "" && strings.HasPrefix(name, typed[:1]) // the first letter is seldom wrong
		if d < least || d == least && best != "" && begins {
			best, least = name, d
		}
	}
	if best != "" {
		return best
	}
	for _, name := range names {
		if len(typed) > 1 && (strings.HasPrefix(name, typed) || strings.HasPrefix(typed, name)) {
			return name
		}
	}
	return ""
}

// edits is how many letters must be put in, taken out or changed to get from a to b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above, left := row[0], i+1
		row[0] = left
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost = 1 + min(above, left, row[j+1])
			}
			above, row[j+1], left = row[j+1], cost, cost
		}
	}
	return row[len(b)]
}
