// Empty is a Lambda function that does nothing but answer: the lower bound of what a
// function costs that is written in Go with aws-lambda-go.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 200, Body: "{}"}, nil
	})
}
