// The program uses each feature once and prints what came of it, an object of JSON a line: {"feature", "ok", "why"}.
// The first line names the client. {"ask"} asks whoever started the program to do something, and waits for a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

const client = "github.com/twmb/franz-go"

var answers = bufio.NewReader(os.Stdin)

// check is one feature; its error says what is wrong with it.
type check struct {
	feature string
	run     func() error
}

func main() {
	if os.Args[1] == "codecs" {
		codecs()
		return
	}
	settings, err := readSettings(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(map[string]any{"client": "franz-go (Go)", "version": version()})
	checks := settings.producing()
	checks = append(checks, settings.reading()...)
	checks = append(checks, settings.groups()...)
	checks = append(checks, settings.transactions()...)
	checks = append(checks, settings.administration()...)
	checks = append(checks, settings.security()...)
	for _, each := range checks {
		why := ""
		if err := each.run(); err != nil {
			why = err.Error()
		}
		say(map[string]any{"feature": each.feature, "ok": why == "", "why": why})
	}
}

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func ask(what string) error {
	say(map[string]any{"ask": what})
	_, err := answers.ReadString('\n')
	return err
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == client {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "?"
}
