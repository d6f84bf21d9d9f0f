package dev.edgedec.demo

import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.io.File

/** A decoder as the app uses it; tests put a scripted one in its place. */
interface Engine : AutoCloseable {
    val state: State

    /** Starts to open a bundle; [state] becomes [State.Ready] or [State.Failed]. */
    fun open(folder: File)

    /** Starts to decode; the listener is called on the decoder's thread. */
    fun generate(request: Request, listener: Listener)

    /** Ends the text within its pass; from any thread. */
    fun cancel()

    /** Ends what is going on, and returns when all memory is free. */
    override fun close()
}

/** What the screen asks of the service that owns the decoder. */
interface Host {
    val state: State

    /** The phone's memory use of this app; null until it was measured. */
    val memoryMb: Int?

    /** The thermal status as `PowerManager` counts; null before Android 10. */
    val thermal: Int?

    /** Opens a bundle in place of what is open; null threads leaves their number to the decoder. */
    fun open(folder: File, threads: Int?)

    fun generate(request: Request, listener: Listener)

    fun cancel()

    /** Closes the decoder to free its memory. */
    fun release()
}
