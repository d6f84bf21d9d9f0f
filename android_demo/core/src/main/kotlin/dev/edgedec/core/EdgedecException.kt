package dev.edgedec.core

/** What went wrong, in one sentence for the user: what was expected, what was found and what to do. */
open class EdgedecException(message: String, cause: Throwable? = null) : Exception(message, cause)

/** A bundle is damaged, hostile, or not for this reader. */
class BundleException(message: String, cause: Throwable? = null) : EdgedecException(message, cause)

/** An option, a prompt or a conversation cannot be used. */
class InputException(message: String) : EdgedecException(message)

/** A call that the state of a session or decoder does not allow, such as one after it was closed. */
class StateException(message: String) : EdgedecException(message)

/** A pass was ended by [Session.interrupt]; the session is as before that pass. */
class InterruptedPass : EdgedecException("the pass was interrupted")
