package logs

import (
	"encoding/json"
	"fmt"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
)

// json returns the entry for a program. What the function wrote is in line if it is a JSON
// object, otherwise in text.
func (e Entry) json() any {
	document := struct {
		Time     string          `json:"time"`
		Function string          `json:"function"`
		Line     json.RawMessage `json:"line,omitempty"`
		Text     string          `json:"text,omitempty"`
	}{Time: cli.Stamp(e.Time), Function: e.Function}
	if text := strings.TrimSpace(e.Text); isObject(text) {
		document.Line = json.RawMessage(text)
	} else {
		document.Text = text
	}
	return document
}

func isObject(text string) bool { return strings.HasPrefix(text, "{") && json.Valid([]byte(text)) }

// hidden are the members of a line that a person does not need: they are shown
// elsewhere, or are for CloudWatch.
var hidden = []string{"time", "level", "msg", "_aws", "StackName", "requestId"}

// text returns the entry for a terminal. Members that are zero are left out, and a message that is only
// the name of the function.
func (e Entry) text() string {
	level, words := "-", []string(nil)
	if line := strings.TrimSpace(e.Text); isObject(line) {
		var known struct{ Level, Msg string }
		_ = json.Unmarshal([]byte(line), &known) // of another type: it is shown as empty
		level = known.Level
		if words = cli.Words([]byte(line), hidden...); known.Msg != e.Function {
			words = append([]string{cli.Plain(known.Msg)}, words...)
		}
	} else {
		for part := range strings.SplitSeq(line, "\t") {
			words = append(words, cli.Plain(part))
		}
	}
	head := fmt.Sprintf("%s  %-7s  %-5s", cli.Stamp(e.Time), e.Function, cli.Plain(level))
	return strings.Join(append([]string{head}, words...), "  ")
}

// routine reports whether the entry is one that Lambda writes for every invocation that
// ends well: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-view.html
// REPORT has a status if it does not.
func (e Entry) routine() bool {
	for _, begin := range []string{"START RequestId:", "END RequestId:", "INIT_START "} {
		if strings.HasPrefix(e.Text, begin) {
			return true
		}
	}
	return strings.HasPrefix(e.Text, "REPORT RequestId:") && !strings.Contains(e.Text, "\tStatus:")
}
