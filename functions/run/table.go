package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
	"uuid"

	"payhook.example/shared/bus"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// row is an invocation and what it must do.
type row struct {
	what     string
	function string // "": webhook
	event    string // of another function
	payload  string // of a webhook, one of payloads; "": a new event. Of redrive, what it publishes
	method   string // "": POST
	flaw     wire.Flaw
	old      bool // older than timestampTolerance
	refused  bool // the bus refuses what is published

	status    int    // 0: successStatus, or none of a function that is not called by HTTP
	outcome   string // of the line; "": the function was not invoked
	published string // as summary returns it
}

// rows are the rows of the table. They are played in order.
var rows = []row{
	{what: "token, replaced", function: "token", event: `{"refresh":true}`, outcome: "refreshed"},
	{what: "one event", payload: "one", outcome: "accepted", published: "1"},
	{what: "three events", payload: "three", outcome: "accepted", published: "3"},
	{what: "the same again", payload: "three", outcome: "accepted"},
	{what: "the same with other white space and escapes", payload: "respelled", outcome: "accepted"},
	{what: "the first event with another amount", payload: "conflict", outcome: "conflict"},
	{what: "one event of more than 200000 bytes", payload: "large", outcome: "accepted", published: "1 as claim check"},
	{what: "the payload was changed", flaw: paymenttest.PayloadChanged, status: 401, outcome: "signature-mismatch"},
	{what: "the timestamp was changed", flaw: paymenttest.TimestampChanged, status: 401, outcome: "signature-mismatch"},
	{what: "another key id", flaw: paymenttest.KeyIDChanged, status: 401, outcome: "key-unknown"},
	{what: "signed with the key of a stranger", flaw: paymenttest.WrongKey, status: 401, outcome: "signature-mismatch"},
	{what: "no signature", flaw: paymenttest.SignatureMissing, status: 401, outcome: "signature-missing"},
	{what: "too old", old: true, status: 401, outcome: "timestamp-outside-window"},
	{what: "more than Lambda takes", payload: "too large", status: 413},
	{what: "DELETE", method: http.MethodDelete, status: 405, outcome: "method-not-allowed"},
	{what: "a monitor asks", method: http.MethodHead, status: 204},
	{what: "not JSON", payload: "text", status: 422, outcome: "invalid"},
	{what: "two events, one without eventId", payload: "partly", status: 422, outcome: "invalid", published: "1"},
	{what: "one event, which the bus refuses", payload: "late", refused: true, outcome: "accepted"},
	{what: "redrive, when it is due", function: "redrive", event: `{}`, payload: "late", published: "1"},
}

func payloads() map[string][]byte {
	one, three := paymenttest.Event(), paymenttest.Delivery(paymenttest.Events(3)...)
	var respelled bytes.Buffer
	_ = json.Indent(&respelled, three, "", "  ") // it is JSON
	return map[string][]byte{
		"one": paymenttest.Delivery(one), "three": three, "late": paymenttest.Delivery(paymenttest.Event()),
		"respelled": bytes.ReplaceAll(respelled.Bytes(), []byte("RELEASED"), []byte(`\u0052ELEASED`)),
		"conflict":  paymenttest.Delivery(paymenttest.WithAmount(one, "9250.00")),
		"large": paymenttest.RawDelivery(uuid.New().String(),
			paymenttest.Noted(paymenttest.Event(), settings.LargeEventBytes)),
		"too large": paymenttest.TooLarge(),
		"text":      paymenttest.NotJSON(),
		"partly":    paymenttest.Delivery(paymenttest.Event(), paymenttest.Nameless()),
	}
}

// applies reports whether a row can be played with the settings.
func (r row) applies(conf settings.Settings) bool {
	_, static := signature.StaticKeyID(conf.KeyIDLocation)
	return !(r.function == "token" && !conf.UsesToken() || r.flaw == paymenttest.KeyIDChanged && static)
}

// expected returns a row as it must be with the settings.
func (r row) expected(conf settings.Settings) row {
	if r.old && conf.TimestampTolerance == settings.Off {
		r.status, r.outcome, r.published = 0, "accepted", "1"
	}
	if r.function == "" {
		r.status = cmp.Or(r.status, conf.SuccessStatus)
	}
	return r
}

// playTable plays the rows that apply, and shows what they did. It returns an error if a row did something else than it
// must.
func (p *process) playTable(ctx context.Context) error {
	if p.service.baseURL != "" {
		fmt.Fprintln(p.screen.out, "No table: only the service of --base-url signs webhooks that are authentic.")
		return nil
	}
	all, wrong, n := payloads(), 0, 0
	out := tabwriter.NewWriter(p.screen.out, 0, 0, 2, ' ', 0)
	show := func(mark, what string, r row) {
		status := strings.TrimPrefix(fmt.Sprint(r.status), "0")
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", mark, what, cmp.Or(status, "-"), cmp.Or(r.outcome, "-"),
			cmp.Or(r.published, "-"))
	}
	fmt.Fprintln(out, "\twhat\tanswer\toutcome\tevents published")
	for _, r := range rows {
		if !r.applies(p.stack.conf) || ctx.Err() != nil {
			continue
		}
		n++
		payload := all[r.payload]
		if payload == nil {
			payload = paymenttest.Delivery(paymenttest.Event())
		}
		got, cause := p.play(ctx, r, payload)
		want := r.expected(p.stack.conf)
		if got == want {
			show("ok", r.what, got)
			continue
		}
		wrong++
		show("WRONG", r.what, got)
		show("", "expected", want)
		fmt.Fprintf(out, "\tcause\t\t\t%s\n", cmp.Or(cause, "-"))
	}
	_ = out.Flush()
	if wrong > 0 {
		return fmt.Errorf("%d of %d results are not as expected", wrong, n)
	}
	fmt.Fprintf(p.screen.out, "All %d results are as expected.\n", n)
	return nil
}

func (p *process) play(ctx context.Context, r row, payload []byte) (got row, cause string) {
	function, event := r.function, []byte(r.event)
	if function == "" {
		function = "webhook"
		w := paymenttest.Webhook{URL: "https://localhost/", Method: r.method, Payload: payload, Flaw: r.flaw}
		if r.old {
			w.Age = max(p.stack.conf.TimestampTolerance, 0) + time.Minute
		}
		request, err := p.service.simulated.Sender().Request(ctx, w)
		if err == nil {
			event, err = newEvent(request, senderIn(p.stack.conf.AllowedNetworks))
		}
		if err != nil {
			return row{}, err.Error()
		}
	}
	p.stack.busDown.Store(r.refused)
	p.stack.ledger.earlier = p.stack.leaseEnds()
	did, _ := p.stack.invoke(ctx, function, event) // an error is the cause
	p.stack.busDown.Store(false)
	p.stack.ledger.earlier = 0
	e := newEntry(function, did)
	e.Text = r.what
	p.screen.feed.add(e)
	r.status, r.outcome, r.published = did.response.StatusCode, did.line.Outcome, summary(did.published)
	return r, did.line.Cause
}

// senderIn returns an address that one of the networks contains; any, if there are none.
func senderIn(networks []string) string {
	if len(networks) == 0 {
		return "192.0.2.1" // of documentation
	}
	address, _, _ := strings.Cut(networks[0], "/")
	return address
}

// summary returns the number of events, and whether they are claim checks.
func summary(published []bus.Entry) string {
	switch n := len(published); {
	case n == 0:
		return ""
	case bytes.Contains(published[0].Detail, []byte(`"claimCheck":`)):
		return fmt.Sprintf("%d as claim check", n)
	default:
		return fmt.Sprint(n)
	}
}
