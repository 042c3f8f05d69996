package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/wire"
)

// end presses Ctrl-C, and returns the lines that are left.
func (r *running) end() (lines []string) {
	r.t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	for text := range r.lines {
		lines = append(lines, text)
	}
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	return lines
}

// send orders a webhook from the simulated payment service.
func send(t *testing.T, control, order string) {
	t.Helper()
	resp, err := http.Post(control, "", strings.NewReader(`{"send": `+order+`}`))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
}

func TestForwardingEndsWithCtrlCAndItsQueueIsBounded(t *testing.T) {
	defer func(limit time.Duration) { forwards.Timeout = limit }(forwards.Timeout)
	forwards.Timeout = 0 // Ctrl-C does not wait for it
	got, answer := make(chan int, 1000), make(chan int)
	program := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- 1
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer program.Close()
	r := up(t, "--forward", program.URL)
	control := r.until("curl .* (http.*/control)")
	send(t, control, "{}")
	<-got // it is not answered, so the others wait
	send(t, control, fmt.Sprintf(`{"events": %d}`, maxWaiting+5))
	if n := r.until("forward  not forwarded: (.+)"); n != "5, since 100 others wait" {
		t.Error(n)
	}
	answer <- 1
	r.until("forward  200 OK  [0-9a-f-]{36}$")
	<-got
	if lines := r.end(); len(lines) != 2 || !strings.Contains(lines[0], "interrupt signal received") ||
		lines[1] != "99 events that waited were not forwarded" {
		t.Errorf("%q", lines)
	}
}

func TestWhoDoesNotSendOrReadTheRestDoesNotHoldTheProcess(t *testing.T) {
	r := up(t)
	service := r.until("^keys +http://(.+)")
	page := r.until("curl .* http://(.+)/control")
	const half = " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
	for _, request := range []string{"POST /web", "POST " + webhookPath + half, "POST /redrive" + half,
		"POST /control" + half, strings.Repeat("GET /state?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 10_000)} {
		for _, host := range []string{page, service} {
			c, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() { _, _ = io.WriteString(c, request) }()
		}
	}
	send(t, "http://"+page+paymenttest.ControlPath, "{}")
	r.until("webhook  200 accepted")
	r.until("event ")
	if lines := r.end(); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
}

// The service sends nothing again, also if Ctrl-C comes first.
func TestAWebhookThatHasArrivedIsAnsweredAfterCtrlC(t *testing.T) {
	p := started(t, io.Discard)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	invoke, arrived, goOn := p.stack.functions["webhook"], make(chan int), make(chan int)
	p.stack.functions["webhook"] = function{invoke.timeout, func(ctx context.Context, event []byte) ([]byte, error) {
		close(arrived)
		<-goOn
		return invoke.invoke(ctx, event)
	}}
	go func() { ended <- p.serve(ctx, listener, nil) }()
	answered := make(chan int)
	go func() {
		url := "http://" + listener.Addr().String() + webhookPath
		a, err := p.service.simulated.Send(t.Context(), paymenttest.Webhook{URL: url,
			Payload: paymenttest.Delivery(paymenttest.Event())})
		if err != nil {
			t.Error(err)
		}
		answered <- a.Status
	}()
	<-arrived
	stop()
	close(goOn)
	if status := <-answered; status != http.StatusOK {
		t.Error(status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// heap returns the bytes that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestAPublishedEventTakesAtMost1KB(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings string
		events   int // of a webhook
		size     int // bytes of an event
	}{{"of many", "", 100, 2_000}, {"long", "", 5, 100_000}, {"large", "", 1, 250_000},
		{"with evidence", "evidence=7d", 5, 20_000}} {
		t.Run(c.name, func(t *testing.T) {
			p := started(t, io.Discard, c.settings)
			server := httptest.NewServer(p.handler())
			defer server.Close()
			receive := func(webhooks int) {
				for range webhooks {
					var raw [][]byte
					for _, e := range paymenttest.Events(c.events) {
						raw = append(raw, paymenttest.Noted(e, c.size))
					}
					a, err := p.service.simulated.Send(t.Context(), paymenttest.Webhook{URL: server.URL + webhookPath,
						Payload: paymenttest.RawDelivery(uuid.New().String(), raw...)})
					if err != nil || a.Status != http.StatusOK {
						t.Fatal(a.Status, err)
					}
				}
			}
			receive(30)                    // until the feed is full
			const n, noise = 50, 2_000_000 // of the heap, in bytes
			feed, before := p.screen.feed.size, heap()
			receive(n)
			grown := heap() - before - (p.screen.feed.size - feed)
			if t.Logf("an event takes %d bytes", grown/(n*c.events)); grown > noise+1024*n*c.events {
				t.Error("an event takes more than 1,024 bytes")
			}
			resp, err := http.Get(server.URL + "/state")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if state, err := io.ReadAll(resp.Body); err != nil || len(state) > maxFeed+10_000 {
				t.Errorf("/state has %d bytes, %v", len(state), err)
			}
		})
	}
}

func TestALineNamesWhatBecameOfAnEvent(t *testing.T) {
	var out bytes.Buffer
	p := started(t, &out)
	server := httptest.NewServer(p.handler())
	defer server.Close()
	p.service.simulated.SetWebhookURL(server.URL + webhookPath)
	for _, kind := range []wire.Flaw{"", paymenttest.Duplicate, paymenttest.Conflict} {
		order := wire.ControlRequest{Send: &wire.Order{Kind: kind}}
		if _, err := p.service.simulated.Do(t.Context(), order); err != nil {
			t.Fatal(err)
		}
	}
	const id = " {2}[0-9a-f-]{36}"
	if !regexp.MustCompile(`(?m)^\S+  webhook  200 accepted` + id + `\n\S+  event    PAYMENT_STATUS.RELEASED` + id +
		`\n\S+  webhook  200 accepted` + id + `\n\S+  event    duplicate` + id +
		`\n\S+  webhook  200 conflict` + id + `  [a-z].*\n\S+  event    conflict` + id + `\n$`).Match(out.Bytes()) {
		t.Errorf("%s", &out)
	}
}

func TestThePageNoticesAnotherProcessOnTheSamePort(t *testing.T) {
	tab := newTab(t)
	var mu sync.Mutex
	first, second := started(t, io.Discard), started(t, io.Discard)
	current := first.handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		current.ServeHTTP(w, r)
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	tab.open(u.String(), 1280, 900)
	first.screen.feed.add(wire.PageEntry{About: "of the first"})
	tab.until(`document.getElementById("entries").textContent.includes("of the first")`)
	for range 3 {
		second.screen.feed.add(wire.PageEntry{About: "of the second"})
	}
	mu.Lock()
	current = second.handler() // with a feed that is longer
	mu.Unlock()
	tab.until(`document.getElementById("entries").children.length === 3 &&
		!document.getElementById("entries").textContent.includes("of the first")`)
}
