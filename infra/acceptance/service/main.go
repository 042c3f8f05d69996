// Service is the simulated payment service as a Lambda function behind a function URL. Its state is a variable of its
// environment.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"payhook.example/shared/paymenttest"
)

func main() {
	var state paymenttest.State
	if text := os.Getenv("STATE"); text != "" {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			log.Fatal(err)
		}
	}
	lambdaurl.Start(state.Handler())
}
