package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"payhook.example/infra/bench/result"
)

// sample is one measurement.
type sample struct {
	took   time.Duration
	cpu    time.Duration
	memory int // bytes
	log    int // bytes
	usage
}

// report collects the samples of a run.
type report struct {
	options
	Load    []string // load averages at the start and at the end
	rows    []string
	samples map[string]map[string][]sample // by row and program
}

func newReport(o options) *report {
	return &report{options: o, Load: []string{load()}, samples: map[string]map[string][]sample{}}
}

func (r *report) add(row, program string, s sample) {
	if r.samples[row] == nil {
		r.rows = append(r.rows, row)
		r.samples[row] = map[string][]sample{}
	}
	r.samples[row][program] = append(r.samples[row][program], s)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// line summarizes the samples of a program in a row.
func (r *report) line(row, program string) result.Line {
	list := r.samples[row][program]
	l := result.Line{Row: row, Program: program, Samples: len(list)}
	var took, logged []float64
	for _, s := range list {
		took, logged = append(took, milliseconds(s.took)), append(logged, float64(s.log))
		l.CPU += milliseconds(s.cpu) / float64(len(list))
		l.Calls += float64(s.calls) / float64(len(list))
		l.Connections += float64(s.connections) / float64(len(list))
		l.RSS = max(l.RSS, float64(s.memory)/(1<<20))
	}
	l.P50, l.P99, l.Log = quantile(took, 0.5), quantile(took, 0.99), quantile(logged, 0.5)
	return l
}

// quantile returns the smallest value that is not less than a part of all values; NaN of
// none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// lines returns all lines, those of one row one after the other.
func (r *report) lines() []result.Line {
	var all []result.Line
	for _, row := range r.rows {
		var programs []string
		for program := range r.samples[row] {
			programs = append(programs, program)
		}
		slices.SortFunc(programs, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
		for _, program := range programs {
			l := r.line(row, program)
			l.CPUToEmpty = l.CPU / r.line(row, "empty").CPU
			if before := r.line(row, "before"); before.Samples > 0 {
				l.CPUToBefore = l.CPU / before.CPU
			}
			all = append(all, l)
		}
	}
	return all
}

// order is that of the programs in the report.
var order = []string{"empty", "webhook", "before", "redrive", "token"}

// ratios returns the ratios of this run.
func (r *report) ratios() []result.Ratio {
	get := func(row string) result.Line { return r.line(row, "webhook") }
	empty := func(row string) result.Line { return r.line(row, "empty") }
	one, warm := get(result.Events(1)), get(result.Later(true))
	type ratio struct {
		name  string
		value float64
	}
	list := []ratio{
		{"start / start of the empty function", get("start").P50 / empty("start").P50},
		{"CPU, 1 event / empty function", one.CPU / empty("1 event").CPU},
		{"CPU, 5.8 MB / empty function", get("5.8 MB, accepted").CPU / empty("5.8 MB, accepted").CPU},
		{"CPU, 5.8 MB forged / empty function",
			get("5.8 MB, signature forged").CPU / empty("5.8 MB, signature forged").CPU},
		{"p50, 100 events / 1 event", get(result.Events(100)).P50 / one.P50},
		{"p50, 1000 events / 1 event", get("1000 events").P50 / one.P50},
		{"AWS calls, 100 events", get(result.Events(100)).Calls},
		{"connections to AWS, first invocation of 100 events over TLS", get(result.First(true, true, 100)).Connections},
		{"first invocation over TLS, key in the table / later p50", get(result.First(true, true, 1)).P50 / warm.P50},
		{"first invocation over TLS, new key / later p50", get(result.First(true, false, 1)).P50 / warm.P50},
		{"first invocation over TLS, 100 events / 1 event",
			get(result.First(true, true, 100)).P50 / get(result.First(true, true, 1)).P50},
		{"log bytes of a plain delivery of 1 event", one.Log},
	}
	if r.before != "" {
		before := func(row string) float64 { return get(row).CPU / r.line(row, "before").CPU }
		list = append(list, ratio{"CPU, 100 events / before", before("100 events")},
			ratio{"CPU, 1 event / before", before("1 event")},
			ratio{"CPU, forged signature / before", before("signature forged")},
			ratio{"start / before", get("start").P50 / r.line("start", "before").P50})
	}
	var all []result.Ratio
	for _, x := range list {
		// Of a step that was not measured there is none.
		if !math.IsNaN(x.value) && !math.IsInf(x.value, 0) && x.value != 0 {
			all = append(all, result.Ratio{Name: x.name, Value: x.value})
		}
	}
	return all
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return result.File{Delay: r.delay.String(), Rounds: r.rounds, Env: r.env.String(), Load: r.Load,
			Lines: r.lines(), Ratios: r.ratios()}.Write(w)
	}
	fmt.Fprintf(w, "AWS answers after %v, %d rounds, load %s, then %s%s\n\n", r.delay, r.rounds,
		r.Load[0], r.Load[len(r.Load)-1], strings.TrimRight(" "+r.env.String(), " "))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tprogram\tp50 ms\tp99 ms\tCPU ms\t/ empty\t/ before\tCPU ms per event\tcalls\tconnections\t"+
		"log bytes\tRSS MiB\t")
	for _, l := range r.lines() {
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%.2f\t%.2f\t%s\t%.3f\t%.1f\t%.1f\t%.0f\t%.1f\t\n", l.Row, l.Program, l.P50,
			l.P99, l.CPU, l.CPUToEmpty, orDash(l.CPUToBefore), l.CPU/float64(eventsOf(l.Row)), l.Calls, l.Connections,
			l.Log, l.RSS)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ratio := range r.ratios() {
		fmt.Fprintf(t, "%s\t%.2f\n", ratio.Name, ratio.Value)
	}
	return t.Flush()
}

func orDash(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// eventsOf returns the number of events of the deliveries of a row.
func eventsOf(row string) int {
	if i := strings.LastIndex(row, ", "); i >= 0 {
		row = row[i+2:]
	}
	var n int
	if _, err := fmt.Sscanf(row, "%d event", &n); err != nil {
		return 1
	}
	return n
}
