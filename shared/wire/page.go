package wire

import (
	"encoding/json/jsontext"
	"time"
)

// PageState is what GET /state answers to the page of make run.
type PageState struct {
	Simulated    bool               `json:"simulated"` // webhooks can be sent
	Flaws        []Flaw             `json:"flaws"`
	Faults       []Fault            `json:"faults"`
	Failing      map[Endpoint]Fault `json:"failing"`
	BusDown      bool               `json:"busDown"`
	TokenExpires time.Time          `json:"tokenExpires,omitzero"` // zero: no valid one
	Pending      int                `json:"pending"`
	Parked       []string           `json:"parked"`  // the names
	Process      string             `json:"process"` // an id
	Last         int                `json:"last"`    // the number of the newest entry
	Entries      []jsontext.Value   `json:"entries"` // each a [PageEntry]
}

// PageEntry is an invocation, as the page shows it.
type PageEntry struct {
	Number int            `json:"number"`
	Time   string         `json:"time"`
	About  string         `json:"about"`          // the function, or forward
	Text   string         `json:"text,omitempty"` // of what has no line, or is in the table
	Status int            `json:"status,omitzero"`
	Cause  string         `json:"cause,omitempty"`
	Log    jsontext.Value `json:"log,omitempty"` // the last line
	Events []PageEvent    `json:"events,omitempty"`
	More   int            `json:"more,omitzero"` // events that the feed leaves out
}

// PageEvent is an event on the bus.
type PageEvent struct {
	Name   string `json:"name"`
	ID     string `json:"id"`
	Detail string `json:"detail"` // indented, or the beginning of a long one
}
