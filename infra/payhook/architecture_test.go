package payhook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// boxes are the functions, the resources and what is outside the stack, and where the picture has them. Claims has the
// box of Parking, and an API has that of the function URL.
var boxes = map[string]struct {
	x, y, w, h  int
	title, kind string
}{
	"service":                   {5, 40, 130, 525, "payment service", ""},
	"Webhook/Alias/FunctionUrl": {225, 60, 125, 60, "function URL", "or API Gateway"},
	"Webhook":                   {430, 60, 120, 365, "webhook", "function"},
	"Ledger":                    {640, 60, 180, 50, "ledger", "DynamoDB"},
	"Parking":                   {640, 135, 180, 50, "parked and large events", "S3"},
	"Records":                   {640, 210, 180, 50, "evidence, if wanted", "S3, locked"},
	"Bus":                       {640, 300, 400, 50, "event bus", "EventBridge"},
	"Keys":                      {640, 375, 180, 50, "key cache", "DynamoDB"},
	"Redrive":                   {910, 60, 130, 125, "redrive", "function"},
	"consumers":                 {840, 390, 200, 50, "your queues, functions, …", ""},
	"Archive":                   {1120, 300, 140, 50, "archive", "EventBridge"},
	"Alarms":                    {1120, 60, 140, 50, "alarms", "CloudWatch, SNS"},
	"operators":                 {1120, 150, 140, 50, "your operators", ""},
	"Token":                     {430, 455, 120, 110, "token", "function"},
	"Token/Secret":              {640, 455, 180, 50, "access token", "Secrets Manager"},
	"Token/Credentials":         {640, 515, 180, 50, "client credentials", "Secrets Manager"},
	"clients":                   {910, 455, 130, 50, "your API clients", ""},
}

// link is a line of the picture: from a function to what it may use, and otherwise in the direction of a webhook.
type link struct{ from, to string }

// labels are the texts at the lines.
var labels = map[link]string{
	{"service", "Webhook/Alias/FunctionUrl"}: "webhooks", {"Webhook/Alias/FunctionUrl", "Webhook"}: "invoke",
	{"Webhook", "service"}: "GET /v1/keys", {"Webhook", "Ledger"}: "record", {"Webhook", "Parking"}: "store",
	{"Webhook", "Bus"}: "publish", {"Webhook", "Keys"}: "keys", {"Bus", "consumers"}: "rules",
	{"Redrive", "Ledger"}: "pending", {"Redrive", "Parking"}: "replay", {"Redrive", "Bus"}: "publish",
	{"Token", "service"}: "request a token", {"Token", "Token/Secret"}: "refresh", {"Token/Secret", "clients"}: "read",
	{"Token", "Token/Credentials"}: "read", {"Webhook", "Records"}: "prove", {"Bus", "Archive"}: "keep",
	{"Alarms", "operators"}: "notify",
}

// links returns the lines of the template with the actions that are allowed, and those to what is outside the stack.
// Each function must have a box.
func (tm *template) links(t *testing.T) map[link][]string {
	t.Helper()
	all := map[link][]string{{"service", "Webhook/Alias/FunctionUrl"}: nil, {"Webhook", "service"}: nil,
		{"Token", "service"}: nil, {"Bus", "consumers"}: nil, {"Token/Secret", "clients"}: nil}
	for path, url := range tm.all(t, "AWS::Lambda::Url") {
		function, _, _ := strings.Cut(tm.render(url.Properties["TargetFunctionArn"]), "/")
		all[link{path, function}] = []string{"lambda:InvokeFunctionUrl"}
	}
	for path, archive := range tm.all(t, "AWS::Events::Archive") {
		bus, _, _ := strings.Cut(tm.render(archive.Properties["SourceArn"]), ".")
		all[link{bus, path}] = nil
	}
	for path, alarm := range tm.all(t, "AWS::CloudWatch::Alarm") {
		name, _, _ := strings.Cut(path, "/")
		if topic := tm.render(alarm.Properties["AlarmActions"]); strings.Contains(topic, "Topic") {
			all[link{name, "operators"}] = nil
		}
	}
	for path := range tm.all(t, "AWS::Lambda::Function") {
		function := strings.TrimSuffix(path, "/Function")
		if boxes[function].title == "" {
			t.Errorf("the function %s has no box", function)
		}
		for arn, actions := range tm.grants(t, function+"/Role") {
			resource, _, _ := strings.Cut(arn, ".")
			l := link{function, strings.Replace(resource, "Claims", "Parking", 1)}
			for _, action := range actions {
				if text := resource + " " + action; resource != function+"/Logs" && !slices.Contains(all[l], text) {
					all[l] = append(all[l], text)
				}
			}
			slices.Sort(all[l])
		}
	}
	return all
}

// The picture of README.md has each function, its schedule, and everything that it may use. The titles of the lines are
// the actions. go test ./infra/payhook -run Architecture -update writes it.
func TestArchitectureIsThatOfTheTemplate(t *testing.T) {
	named := map[string]any{"stackName": "Bank", "evidence": "7y"}
	tm, api := payhook(t, named, nil), payhook(t, named, mtls("both"))
	integration := api.get(t, "Endpoint/Integration", "AWS::ApiGatewayV2::Integration").Properties
	if invoked := api.render(integration["IntegrationUri"]); invoked != "Webhook/Alias" {
		t.Errorf("API Gateway invokes %s", invoked)
	}
	var parts []string
	linked := map[string]bool{}
	for l, actions := range tm.links(t) {
		if boxes[l.from].title == "" || boxes[l.to].title == "" || labels[l] == "" {
			t.Errorf("a box or the label is missing: %s", l)
		}
		linked[l.from], linked[l.to] = true, true
		parts = append(parts, l.draw(actions))
	}
	for name, b := range boxes {
		if !linked[name] {
			t.Errorf("the template has no %s", name)
		}
		part := fmt.Sprintf(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#fff" stroke="#57606a"/>`,
			b.x, b.y, b.w, b.h)
		text := strings.Split(strings.TrimSuffix(b.title+"\n"+b.kind, "\n"), "\n")
		if schedule := tm.Resources[name+"/Schedule"]; schedule != nil {
			text = append(text, strings.NewReplacer("rate(1 ", "every ", ")", "").Replace(
				schedule.Properties["ScheduleExpression"].(string)))
		}
		for i, line := range text {
			part += fmt.Sprintf(`<text x="%d" y="%d">%s</text>`, b.x+b.w/2, b.y+b.h/2+14-9*len(text)+18*i, line)
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	svg := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1280 585" ` +
		`font-family="Arial, Helvetica, sans-serif" font-size="14" fill="#1b1f24" text-anchor="middle">
<title>Architecture of Payhook</title><style>text+text{fill:#57606a}</style>
<marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto-start-reverse">` +
		`<path d="M0 0L9 4L0 8z" fill="#1f5fbf"/></marker>
<rect width="1280" height="585" rx="8" fill="#fff"/>
<rect x="146" y="10" width="1124" height="565" rx="8" fill="#f3f5f8" stroke="#8590a0" stroke-dasharray="6 4"/>
<text x="215" y="32">your AWS account</text>
` + strings.Join(parts, "\n") + "\n</svg>\n"
	if *update {
		writeFile(t, "architecture.svg", svg)
	} else if diff := cmp.Diff(string(readFile(t, "architecture.svg")), svg); diff != "" {
		t.Errorf("the picture is another (go test ./infra/payhook -run Architecture -update writes it):\n%s", diff)
	}
}

// draw returns the line between two boxes where they are opposite each other. Its heads show where data goes.
func (l link) draw(actions []string) string {
	a, b := boxes[l.from], boxes[l.to]
	read := regexp.MustCompile(`:(Get|BatchGet|Query|List)`)
	heads := ""
	if slices.ContainsFunc(actions, read.MatchString) {
		heads = ` marker-start="url(#head)"`
	}
	if actions == nil || slices.ContainsFunc(actions, func(a string) bool { return !read.MatchString(a) }) {
		heads += ` marker-end="url(#head)"`
	}
	x1, x2, y1, y2 := a.x+a.w, b.x, max(a.y, b.y), min(a.y+a.h, b.y+b.h)
	x, y := 0, 0 // of the label
	if y1 < y2 { // side by side
		if a.x > b.x {
			x1, x2 = a.x, b.x+b.w
		}
		y1 = (y1 + y2) / 2
		y2, x, y = y1, (x1+x2)/2, y1-6
	} else { // the first above the second
		x1, y1, y2 = (max(a.x, b.x)+min(a.x+a.w, b.x+b.w))/2, a.y+a.h, b.y
		x2, x, y = x1, x1+30, (y1+y2)/2+5
	}
	return fmt.Sprintf(`<path d="M%d %dL%d %d" stroke="#1f5fbf" stroke-width="1.5"%s><title>%s</title></path>`+
		`<text x="%d" y="%d" font-size="13">%s</text>`,
		x1, y1, x2, y2, heads, strings.Join(actions, ", "), x, y, labels[l])
}
