package dev.edgedec.core

/**
 * Ends one text from any thread, also inside a pass.
 *
 * Make one for each text: a text whose cancellation is asked for before it begins ends without a token.
 */
class Cancellation {
    private var interrupt: () -> Unit = {}

    @Volatile
    var requested = false
        private set

    @Synchronized
    fun cancel() {
        requested = true
        interrupt()
    }

    /** Calls [interrupt] for a later [cancel], and no more once this returns after `attach {}`. */
    @Synchronized
    internal fun attach(interrupt: () -> Unit) {
        this.interrupt = interrupt
    }
}
