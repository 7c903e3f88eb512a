// Checksum shows what the checksums of streams cost: processor time of key calls over a stream on
// loopback, server and host in one process, with the checksums and without. The build without them has
// one line of wire/stream replaced while it compiles; the product has no switch for that.
//
// usage: go run ./bench/checksum [-pairs n]
//
// The two builds run in turn. The figure is the median of the ratios of neighbours, since the speed of a
// machine drifts. The exit code is 1 if it is above the bar.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// bar is the most that checksums may add.
const bar = 1.03

const (
	source  = "wire/stream/header.go"
	summing = "{ return crc32.Update(0, castagnoli, b) }"
	idle    = "{ _ = b; return 0 }"
)

func main() {
	pairs := flag.Int("pairs", 40, "how often the two builds run in turn, for each number of callers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pairs); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pairs int) error {
	dir, err := os.MkdirTemp("", "serry-checksum")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	with, without := filepath.Join(dir, "with.test"), filepath.Join(dir, "without.test")
	overlay, err := withoutChecksums(dir)
	if err != nil {
		return err
	}
	if err := build(ctx, with); err != nil {
		return err
	}
	if err := build(ctx, without, "-overlay", overlay); err != nil {
		return err
	}
	fmt.Println("callers  with        without     ratio of neighbours  bar")
	missed := false
	for _, callers := range []int{16, 256} {
		a, b, ratio, err := compare(ctx, with, without, callers, pairs)
		if err != nil {
			return err
		}
		missed = missed || ratio > bar
		fmt.Printf("%7d  %-10v  %-10v  %19.3f  %.2f %s\n", callers, a, b, ratio, bar, sheet.Kept(ratio <= bar))
	}
	if missed {
		return fmt.Errorf("checksums cost more than %.0f %% of the processor time of a call", 100*(bar-1))
	}
	return nil
}

// withoutChecksums writes the file that tells the compiler which source to replace, and by what.
func withoutChecksums(dir string) (overlay string, err error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("%w: run it from the root of the repository", err)
	}
	changed := bytes.Replace(text, []byte(summing), []byte(idle), 1)
	changed = bytes.Replace(changed, []byte("uint32 "+idle), []byte("uint32 "+idle+"\n\nvar _ = crc32.Update"), 1)
	if bytes.Equal(changed, text) {
		return "", fmt.Errorf("%s does not have the line %q any more", source, summing)
	}
	from, err := filepath.Abs(source)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "header.go")
	if err := os.WriteFile(to, changed, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {from: to}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

func build(ctx context.Context, to string, flags ...string) error {
	args := append(append([]string{"test", "-c", "-o", to}, flags...), "./server")
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %q: %w\n%s", args, err, out)
	}
	return nil
}

// compare runs both builds in turn. It returns the medians of the processor time of a call, and of the
// ratios of neighbours.
func compare(ctx context.Context, with, without string, callers, pairs int) (a, b time.Duration, ratio float64, err error) {
	var took [2][]time.Duration
	var ratios []float64
	for range pairs {
		var pair [2]time.Duration
		for i, binary := range []string{with, without} {
			if pair[i], err = perCall(ctx, binary, callers); err != nil {
				return 0, 0, 0, err
			}
			took[i] = append(took[i], pair[i])
		}
		ratios = append(ratios, float64(pair[0])/float64(pair[1]))
	}
	return sheet.Median(took[0]), sheet.Median(took[1]), sheet.Median(ratios), nil
}

// calls is how many one run makes.
const calls = 200_000

// perCall is the processor time of a call, of both ends together.
func perCall(ctx context.Context, binary string, callers int) (time.Duration, error) {
	bench := fmt.Sprintf("StreamKeys/callers=%d$", callers)
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", fmt.Sprint(calls, "x"))
	cmd.Dir = "server"
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("ns/op")) {
		return 0, fmt.Errorf("%s: %w\n%s", bench, err, out)
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / calls, nil
}
