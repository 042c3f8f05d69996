package payhook

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The document states the fixed cost of a month from the resources of the default template: AWS charges 3 $ for a
// dashboard, 0.10 $ for each metric of an alarm, 0.30 $ for a metric of our own, and 0.40 $ for a secret
// (https://aws.amazon.com/cloudwatch/pricing/, https://aws.amazon.com/secrets-manager/pricing/).
func TestTheMonthlyCostIsThatOfTheTemplate(t *testing.T) {
	template, err := os.ReadFile("testdata/default.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := func(pattern string) int { return len(regexp.MustCompile(`(?m)`+pattern).FindAll(template, -1)) }
	alarms := count(`^Alarms/\S+ = AWS::CloudWatch::Alarm$`)
	ofAlarms := count(`^Alarms/\S+\.MetricName = `) + count(`^Alarms/\S+\.MetricStat\.Metric = `)
	secrets := count(` = AWS::SecretsManager::Secret$`)
	document, err := os.ReadFile("../../functions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(document)), " ")
	dashboards := count(` = AWS::CloudWatch::Dashboard$`)
	want := fmt.Sprintf("dashboard %.2f, %d alarms on %d metrics %.2f,", 3*float64(dashboards), alarms, ofAlarms,
		float64(ofAlarms)/10)
	if !strings.Contains(text, want) || secrets != 2 {
		t.Errorf("%d secrets; functions/README.md does not say %q", secrets, want)
	}

	month := regexp.MustCompile(`\*\*A month\*\* costs ([\d.]+) \$: ([^;]*?[\d.]+)\. `).FindStringSubmatch(text)
	if month == nil {
		t.Fatal("functions/README.md does not say what a month costs")
	}
	cents := 0
	for part := range strings.SplitSeq(month[2], ", ") {
		words := strings.Fields(part)
		dollars, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil {
			t.Errorf("%s: %v", part, err)
		}
		cents += int(dollars*100 + 0.5)
	}
	if sum := fmt.Sprintf("%d.%02d", cents/100, cents%100); sum != month[1] {
		t.Errorf("the parts cost %s $ together, not %s $", sum, month[1])
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), month[1]+" $ a month") {
		t.Errorf("README.md does not say %s $ a month", month[1])
	}
}
