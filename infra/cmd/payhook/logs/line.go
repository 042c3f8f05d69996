package logs

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
)

// json returns the entry for a program. What the function wrote is in line if it is a JSON
// object, otherwise in text.
func (e entry) json() any {
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
func (e entry) text() string {
	level, words := "-", []string(nil)
	if line := strings.TrimSpace(e.Text); isObject(line) {
		var known struct{ Level, Msg string }
		_ = json.Unmarshal([]byte(line), &known) // of another type: it is shown as empty
		level = known.Level
		if known.Msg != e.Function {
			words = append(words, cli.Plain(known.Msg))
		}
		words = append(words, members("", jsontext.Value(line))...)
	} else {
		for part := range strings.SplitSeq(line, "\t") {
			words = append(words, cli.Plain(part))
		}
	}
	head := fmt.Sprintf("%s  %-7s  %-5s", cli.Stamp(e.Time), e.Function, cli.Plain(level))
	return strings.Join(append([]string{head}, words...), "  ")
}

// members returns the members of a JSON object and of the objects within as name=value, without those that are
// hidden or zero.
func members(prefix string, object jsontext.Value) (words []string) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	_, _ = d.ReadToken() // {
	for d.PeekKind() == jsontext.KindString {
		token, _ := d.ReadToken()
		name := prefix + token.String()
		value, err := d.ReadValue()
		if err != nil {
			return words
		}
		text := string(value)
		switch {
		case slices.Contains(hidden, name), slices.Contains([]string{"0", "false", "null", "[]", `""`}, text):
		case value.Kind() == jsontext.KindBeginObject:
			words = append(words, members(name+".", value)...)
		default:
			if unquoted, err := jsontext.AppendUnquote(nil, value); err == nil {
				text = string(unquoted)
			}
			words = append(words, cli.Word(name, text))
		}
	}
	return words
}

// routine reports whether the entry is one that Lambda writes for every invocation that
// ends well: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-view.html
// REPORT has a status if it does not.
func (e entry) routine() bool {
	for _, begin := range []string{"START RequestId:", "END RequestId:", "INIT_START "} {
		if strings.HasPrefix(e.Text, begin) {
			return true
		}
	}
	return strings.HasPrefix(e.Text, "REPORT RequestId:") && !strings.Contains(e.Text, "\tStatus:")
}
