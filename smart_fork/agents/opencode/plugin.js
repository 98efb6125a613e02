// smart-fork's plugin. `smart-fork setup` writes it again, `smart-fork setup --remove` deletes it.
// It tells smart-fork what its workers do, and our tools which session calls them. It fails in silence.
import { spawn } from "node:child_process"

const COMMAND = "@COMMAND@"
const TOOLS = "@TOOLS@"
const ARGUMENT = "@ARGUMENT@"
const IS_WORKER = Boolean(process.env.SMART_FORK_WORKER_ID)

/** One event for the command, which ends by itself. One after another: the last one said is what holds. */
let last = Promise.resolve()
const tell = (event) => {
  last = last.then(
    () =>
      new Promise((done) => {
        try {
          const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
          child.on("error", done)
          child.on("close", done)
          child.stdin.on("error", () => {})
          child.stdin.end(JSON.stringify(event))
        } catch {
          done()
        }
      }),
  )
}

export const SmartFork = async ({ directory }) => {
  const below = new Set() // sessions of sub-agents: what they do, their session does
  const states = new Map()

  const say = (session_id, hook_event_name, more = {}) => {
    if (!session_id || below.has(session_id)) return
    // A session that is nobody's worker is of interest at its start only.
    if (!IS_WORKER && hook_event_name !== "SessionStart") return
    tell({ session_id, hook_event_name, cwd: directory, ...more })
  }
  /** The same state twice is said once. */
  const change = (session, state, more) => {
    if (states.get(session) === state) return
    states.set(session, state)
    say(session, state, more)
  }

  return {
    event: async ({ event }) => {
      const about = event?.properties ?? {}
      if (event?.type === "session.created") {
        if (about.info?.parentID) below.add(about.info.id)
        else say(about.info?.id, "SessionStart", { source: "startup" })
      } else if (event?.type === "session.status") {
        if (about.status?.type === "idle") change(about.sessionID, "Stop")
        else change(about.sessionID, "UserPromptSubmit")
      } else if (event?.type === "permission.asked") {
        const command = Array.isArray(about.patterns) ? about.patterns.join(" ") : ""
        change(about.sessionID, "PermissionRequest", { tool_name: about.permission, tool_input: { command } })
      } else if (event?.type === "permission.replied") {
        change(about.sessionID, "UserPromptSubmit")
      }
    },
    "tool.execute.before": async (input, output) => {
      if (input?.tool?.startsWith(TOOLS) && output?.args) output.args[ARGUMENT] = input.sessionID
    },
  }
}
