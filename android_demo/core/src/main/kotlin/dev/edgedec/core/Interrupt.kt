package dev.edgedec.core

import ai.onnxruntime.OrtLoggingLevel
import ai.onnxruntime.OrtSession

/** The request to end a pass, and the run options that carry it; safe from any thread, also once closed. */
internal class Interrupt : AutoCloseable {
    /** Run options of every pass. */
    val options = OrtSession.RunOptions()

    private var asked = false
    private var open = true

    init {
        // An ended pass is not worth a line on standard error.
        options.setLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL)
    }

    /** Ends the running pass, or the next one: a request between two passes is kept. */
    @Synchronized
    fun ask() {
        asked = true
        if (open) options.setTerminate(true)
    }

    /** Throws [InterruptedPass], once for each request. */
    @Synchronized
    fun answer() {
        if (asked) {
            forget()
            throw InterruptedPass()
        }
    }

    /** Lets passes run again. */
    @Synchronized
    fun forget() {
        asked = false
        if (open) options.setTerminate(false)
    }

    @Synchronized
    override fun close() {
        if (open) {
            open = false
            options.close()
        }
    }
}
