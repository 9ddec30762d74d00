package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/limit"
)

// errTooOld is the cause of every failure while the server is too old.
var errTooOld = errors.New("the server is older than Redis 6.2: Tidegate needs Redis 6.2 or newer, or Valkey")

// errOverload is the cause of a call that had no turn in time while others got their replies: Redis
// works, but not fast enough for all.
var errOverload = errors.New("more calls than Redis answers in time")

// replyFailures maps how an error reply begins to its kind. A script's own error may carry the
// reply of the command that failed further back.
var replyFailures = []struct {
	word    string
	failure limit.Failure
}{
	{"LOADING", limit.FailureLoading},
	{"READONLY", limit.FailureReadOnly},
	{"OOM", limit.FailureMemory},
	{"BUSY", limit.FailureBusy},
	{"MASTERDOWN", limit.FailureMasterDown},
	{"CLUSTERDOWN", limit.FailureClusterDown},
	{"NOAUTH", limit.FailureAuth},
	{"WRONGPASS", limit.FailureAuth},
	{"NOPERM", limit.FailureAuth},
	{"WRONGTYPE", limit.FailureWrongType},
}

// scriptRefusals are the words for a command or key within a script that the user has no right to:
// up to Redis 7.0, and since.
var scriptRefusals = []string{"The user executing the script can't", "ACL failure in script"}

// failureOf says what kind of failure err is.
func failureOf(err error) limit.Failure {
	var reply redis.Error
	var network net.Error
	switch {
	case errors.Is(err, errTooOld):
		return limit.FailureUnsupported
	case errors.Is(err, errOverload):
		return limit.FailureOverload
	case errors.Is(err, context.Canceled):
		return limit.FailureCanceled
	case errors.As(err, &reply):
		return replyFailure(reply.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return limit.FailureTimeout
	case errors.As(err, &network) && network.Timeout():
		return limit.FailureTimeout
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return limit.FailureConnection
	default:
		return limit.FailureOther
	}
}

func replyFailure(text string) limit.Failure {
	for _, f := range replyFailures {
		if strings.HasPrefix(text, f.word+" ") {
			return f.failure
		}
	}
	if !strings.HasPrefix(text, "ERR ") {
		return limit.FailureOther
	}
	// Redis 6.2 wraps the reply of a script's command: "ERR Error running script (…): …: OOM …".
	for _, f := range replyFailures {
		if strings.Contains(text, ": "+f.word+" ") {
			return f.failure
		}
	}
	for _, words := range scriptRefusals {
		if strings.Contains(text, words) {
			return limit.FailureAuth
		}
	}
	return limit.FailureOther
}

// isReply reports whether err is an error reply: the script ran into it before it wrote anything.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
