// Package result is what the benchmark (package bench) prints with -json, for programs that read
// it.
//
// It guarantees that what Write writes is what Read returns, and that the names of rows are the
// same for both.
package result

import (
	"encoding/json/v2"
	"fmt"
	"io"
	"os"
)

// File is the result of a run of the benchmark.
type File struct {
	Delay  string   `json:"delay"` // after which AWS answers
	Rounds int      `json:"rounds"`
	Env    string   `json:"env"`  // further variables of the functions
	Load   []string `json:"load"` // load averages at the start and at the end
	Lines  []Line   `json:"lines"`
	Ratios []Ratio  `json:"ratios"`
}

// Line is what was measured of one program in one row. Times are in milliseconds.
type Line struct {
	Row         string  `json:"row"`
	Program     string  `json:"program"`
	Samples     int     `json:"samples"`
	P50         float64 `json:"p50"`
	P99         float64 `json:"p99"`
	CPU         float64 `json:"cpu"`         // mean
	CPUToEmpty  float64 `json:"cpuToEmpty"`  // a ratio
	CPUToBefore float64 `json:"cpuToBefore"` // a ratio; 0 without -before
	Calls       float64 `json:"calls"`       // mean of the calls of AWS and of the key service
	Connections float64 `json:"connections"` // mean of those to AWS
	Log         float64 `json:"logBytes"`    // median
	RSS         float64 `json:"rssMiB"`      // maximum
}

// Ratio is one of the ratios that are kept small.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Webhook is the program of the lines of the webhook function.
const Webhook = "webhook"

// Events returns the row of accepted webhooks of some events.
func Events(n int) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// First returns the row of the first webhook of a process, over TLS or not, whose key is in the
// table or must be fetched.
func First(tls, known bool, events int) string {
	where := "new key"
	if known {
		where = "key in the table"
	}
	return fmt.Sprintf("first, %s, %s, %s", protocol(tls), where, Events(events))
}

// Later returns the row of the webhooks after the first of a process.
func Later(tls bool) string { return fmt.Sprintf("later, %s, %s", protocol(tls), Events(1)) }

func protocol(tls bool) string {
	if tls {
		return "TLS"
	}
	return "HTTP"
}

// Write writes a result.
func (f File) Write(w io.Writer) error { return json.MarshalWrite(w, f, json.Deterministic(true)) }

// Read reads a file that Write has written.
func Read(name string) (f File, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s is not the output of go run ./infra/bench -json: %w", name, err)
	}
	return f, nil
}

// Of returns the line of the webhook function in a row.
func (f File) Of(row string) (Line, bool) {
	for _, l := range f.Lines {
		if l.Row == row && l.Program == Webhook {
			return l, true
		}
	}
	return Line{}, false
}
